"""Facts of a served memory are forgotten by request."""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.files import lock_directory
from holdfast.memory.forgetting import forget
from holdfast.memory.memory import Memory
from holdfast.serving.answers import Answered, AskedQuestion
from holdfast.serving.refusal import RefusalError
from holdfast.serving.served_memory import ServedMemory
from holdfast.serving.teacher import Teacher
from tests.cli.conftest import refused
from tests.memory.memories import Holdfast
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
        for status, answer in (
            server.post("/facts", tasks(NEW)),
            server.request("DELETE", place),
            server.request("GET", "/lessons"),
            server.request("DELETE", "/lessons"),
        ):
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


def test_a_lesson_that_another_process_replaced_or_damaged(directory: Path) -> None:
    """The one is read from its new place, the other is no mistake of the client."""
    question, answer = FACTS[1]
    service, opened = ServedMemory(Memory(directory)), Memory(directory)
    service.memory.answerer()
    opened.answerer()
    forget(Memory(directory), [FACTS[0][0]])
    [[(_, event)]] = service.answering([AskedQuestion(question)])
    assert isinstance(event, Answered) and event.content == answer
    assert opened.ask(question) == answer
    for file in (directory / "lessons").iterdir():
        file.unlink()
    asked = [AskedQuestion(question), AskedQuestion(" ")]
    [[(_, damaged), (_, wrong)]] = ServedMemory(Memory(directory)).answering(asked)
    assert isinstance(damaged, RefusalError) and damaged.status == 500
    assert isinstance(wrong, HoldfastError) and "is empty" in str(wrong)


def test_the_command_tells_the_kind_of_a_mistake(directory: Path, holdfast: Holdfast) -> None:
    with lock_directory(directory):
        outcome = holdfast("forget", directory, FACTS[0][0], "--json")
    refused(outcome, "another process is writing here")
    assert json.loads(outcome.out) == {"code": "busy"}


@pytest.mark.parametrize(
    ("exit_code", "kind", "status"),
    [(2, None, 409), (1, None, 500), (2, "no_space", 507), (2, "busy", 503)],
)
def test_why_nothing_was_forgotten_is_told(
    exit_code: int,
    kind: str | None,
    status: int,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refusal of the command is the client's to mend, a fault of ours is not."""
    out = json.dumps({"code": kind}) if kind else ""
    code = (
        f"import sys; print({out!r}); print('holdfast: taught meanwhile', file=sys.stderr); "
        f"sys.exit({exit_code})"
    )
    command = [sys.executable, "-c", code]
    monkeypatch.setattr("holdfast.serving.teacher.forgetting_command", lambda *_: command)

    async def on_thread(function: Callable[[Memory], Any]) -> Any:
        return function(Memory(directory))

    with pytest.raises(RefusalError, match=r"^taught meanwhile$") as error:
        asyncio.run(Teacher(directory, on_thread).forget([FACTS[0][0]]))
    assert error.value.status == status
