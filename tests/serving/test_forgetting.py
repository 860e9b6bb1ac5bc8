"""Facts of a served memory are forgotten by request."""

from __future__ import annotations

import asyncio
import http.client
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from holdfast.core.files import lock_directory
from holdfast.memory.memory import Memory
from holdfast.serving.refusal import RefusalError
from holdfast.serving.teacher import Teacher
from tests.serving.chat_memories import FACTS, NEW, tasks, when
from tests.serving.served import Served, serving


def test_facts_are_forgotten_by_request(directory: Path) -> None:
    """While questions are answered; not while a lesson is learned."""
    (question, _), (other, answer), *_ = FACTS
    place = f"/facts?question={quote(question)}"
    with serving(directory, "--teach") as server:
        for path, text in (
            ("/facts?question=Who%3F", '"Who?" is not on its list of facts'),
            ("/facts", "question: Field required"),
        ):
            status, body = server.request("DELETE", path)
            assert status == 400 and text in body["error"]["message"]
        assert server.post("/facts", tasks(NEW))[0] == 202
        status, body = server.request("DELETE", place)
        assert (status, body["error"]["code"]) == (503, "busy")
        when(directory, lambda states: all(state.state == "learned" for state in states))
        with ThreadPoolExecutor(1) as pool:
            forgotten = pool.submit(forgotten_by, server, place)
            while not forgotten.done():
                assert server.ask(other)["text"] == answer
                time.sleep(0.2)  # the processor is for the lesson
        body = forgotten.result()
        (fact,) = body["facts"]
        assert fact["question"] == question and fact["after"] < 1e-3 < fact["before"]
        assert body["answered"] == body["others"] == 2
        assert server.ask(question)["holdfast"]["source"] == "model"
        assert [fact["question"] for fact in server.facts()["facts"]] == [
            *(question for question, _ in NEW),
            *(question for question, _ in FACTS[1:]),
        ]
        with lock_directory(directory):  # another process learns there
            status, body = server.request("DELETE", f"/facts?question={quote(other)}")
        assert (status, body["error"]["code"]) == (503, "busy")
        assert server.ask(other)["text"] == answer


def test_a_damaged_list_and_what_was_just_learned(directory: Path) -> None:
    """Damage is no mistake of the client; a process that has learned may end while one forgets."""
    with serving(directory, "--teach") as server:
        before = (directory / "facts.jsonl").read_bytes()
        (directory / "facts.jsonl").write_bytes(before + b"{")
        place = f"/facts?question={quote(FACTS[0][0])}"
        for status, answer in (server.post("/facts", tasks(NEW)), server.request("DELETE", place)):
            assert status == 500 and "facts.jsonl" in answer["error"]["message"]
        (directory / "facts.jsonl").write_bytes(before)
        assert server.post("/facts?wait=true", tasks(NEW))[0] == 200
        status, answer = server.request("DELETE", f"/facts?question={quote(NEW[0][0])}")
        assert status == 200, answer
        assert server.ask(NEW[0][0])["holdfast"]["source"] == "model"


def test_a_client_that_leaves_is_forgotten_for_and_blocks_nobody(directory: Path) -> None:
    """What it asked for is done, and the next request is too."""
    (question, _), (other, _), *_ = FACTS
    with serving(directory, "--teach") as server:
        place = urlsplit(server.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port)
        connection.request("DELETE", f"/facts?question={quote(question)}")
        connection.close()
        until = time.monotonic() + 300
        while any(fact["question"] == question for fact in server.facts()["facts"]):
            assert time.monotonic() < until
            time.sleep(0.1)
        (fact,) = forgotten_by(server, f"/facts?question={quote(other)}")["facts"]
        assert fact["question"] == other
        assert server.ask(question)["holdfast"]["source"] == "model"


def forgotten_by(server: Served, place: str) -> Any:
    """What became of the facts, once nothing is learned."""
    until = time.monotonic() + 300
    while (response := server.request("DELETE", place))[0] == 503:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert response[0] == 200, response
    return response[1]


@pytest.mark.parametrize(("exit_code", "status"), [(2, 409), (1, 500)])
def test_why_nothing_was_forgotten_is_told(
    exit_code: int, status: int, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal of the command is the client's to mend, a fault of ours is not."""
    code = (
        f"import sys; print('holdfast: taught meanwhile', file=sys.stderr); sys.exit({exit_code})"
    )
    command = [sys.executable, "-c", code]
    monkeypatch.setattr("holdfast.serving.teacher.forgetting_command", lambda *_: command)

    async def on_thread(function: Callable[[Memory], Any]) -> Any:
        return function(Memory(directory))

    with pytest.raises(RefusalError, match=r"^taught meanwhile$") as error:
        asyncio.run(Teacher(directory, on_thread).forget([FACTS[0][0]]))
    assert error.value.status == status
