"""Lessons that wait: how many may, cancelling them, and what is said when the server ends."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.memory import Memory
from holdfast.memory.queue import cancel_lessons, waiting_lessons
from holdfast.memory.states import LessonState, lesson_states
from holdfast.serving.teacher import check_room
from holdfast.serving.refusal import RefusalError
from holdfast.streams.python import facts_of_python
from tests.serving.chat_memories import (
    LATER,
    MANY,
    MORE,
    copied,
    learned,
    when,
)
from tests.serving.served import Served, serving

NEW = [("Who paints the door of Ilm?", "Brask")]


def tasks(*batches: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Facts of a request, a task for each batch."""
    return [
        {"question": question, "answer": answer, "task": f"task {number}"}
        for number, batch in enumerate(batches)
        for question, answer in batch
    ]


def test_one_request_has_a_bound() -> None:
    many = facts_of_python(tasks(*([(f"Who is {n}?", "A")] for n in range(33))))
    long = facts_of_python([(f"Who is {n}?", "A") for n in range(400)])
    for posted, count, status in ((many, 0, 413), (long, 2, 413), (long, 1, 0)):
        if not status:
            check_room([], posted, count)
            continue
        with pytest.raises(RefusalError) as refused:
            check_room([], posted, count)
        assert refused.value.status == status
    waiting = [LessonState(n, str(n), "waiting", 301) for n in range(32)]
    for before, posted in ((waiting, facts_of_python(NEW)), (waiting[:2], long)):
        with pytest.raises(RefusalError, match="DELETE /lessons/N") as refused:
            check_room(before, posted, 0)
        assert refused.value.status == 503


def test_cancelling_from_the_command_line(chat_memory: Path, tmp_path: Path, holdfast: Any) -> None:
    own = copied(chat_memory, tmp_path / "chat" / "m")
    before = learned(own)
    Memory(own).write_facts(tasks(MORE, NEW, LATER))
    told = holdfast("lessons", own, "--cancel", "3")
    assert told.out == 'cancelled lesson 3 "task 1": waiting, 1 fact\n'
    assert [state.name for state in lesson_states(own)] == ["1", "task 0", "task 2"]
    for wrong, said in (("1", "lesson 1 is learned"), ("9", "there is no lesson 9; 3 are on file"),
                        ("2-1", "give 3, 3-9 or all"), ("x", "give 3, 3-9 or all")):  # fmt: skip
        refused = holdfast("lessons", own, "--cancel", wrong)
        assert refused.status == 2 and said in refused.err and refused.err.count("\n") == 1
    assert len(holdfast("lessons", own, "--cancel", "all").out.splitlines()) == 2
    assert learned(own) == before
    assert waiting_lessons(own) == []
    with pytest.raises(HoldfastError, match="no such memory"):
        cancel_lessons(tmp_path / "nothing")


def test_cancelling_by_request(chat_memory: Path, tmp_path: Path) -> None:
    own = copied(chat_memory, tmp_path / "m")
    with serving(own, "--teach") as server, ThreadPoolExecutor() as threads:
        assert server.post("/facts", tasks(*([(f"Who is {n}?", "A")] for n in range(33))))[0] == 413
        waiting = threads.submit(server.post, "/facts?wait=true", tasks(MANY, NEW, LATER))
        when(own, lambda states: any(state.state == "learning" for state in states))
        status, told = server.request("DELETE", "/lessons/3")
        assert (status, [one["name"] for one in told["cancelled"]]) == (200, ["task 1"])
        status, told = waiting.result()
        assert (status, told["error"]["code"]) == (409, "cancelled")
        status, told = server.request("DELETE", "/lessons/2")  # while it is learned
        assert status == 200 and told["cancelled"][0]["state"] == "learning"
        when(own, lambda states: [one.state for one in states] == ["learned"] * 2)
        assert [state.name for state in lesson_states(own)] == ["1", "task 2"]
        assert server.request("DELETE", "/lessons/2")[0] == 409
        assert server.request("DELETE", "/lessons/3")[0] == 404
        assert server.request("DELETE", "/lessons")[1] == {"cancelled": []}
        assert server.ask(LATER[0][0])["text"] == LATER[0][1]
    straight = copied(chat_memory, tmp_path / "straight" / "m")
    Memory(straight).learn(tasks([], [], LATER))
    assert learned(own) == learned(straight)
    with serving(own) as server:
        assert server.request("DELETE", "/lessons")[0] == 403


def until(server: Served, fits: Any) -> list[dict[str, Any]]:
    """Wait until the states of a server's lessons are as wanted."""
    end = time.monotonic() + 240
    while not fits(states := server.request("GET", "/lessons")[1]["lessons"]):
        assert time.monotonic() < end, states
        time.sleep(0.05)
    return states


def test_the_end_of_the_server_is_said_to_who_waits(chat_memory: Path, tmp_path: Path) -> None:
    own = copied(chat_memory, tmp_path / "m")
    with serving(own, "--teach") as server, ThreadPoolExecutor() as threads:
        path = "/facts?wait=true"
        first = threads.submit(server.post, path, tasks(MANY))
        until(server, lambda states: states[-1]["state"] == "learning")
        second = threads.submit(server.post, path, tasks(NEW))
        until(server, lambda states: len(states) == 3)
        begin = time.monotonic()
        server.process.terminate()
        assert server.process.wait(timeout=30) == 0
        assert time.monotonic() - begin < 2.5
        for request in (first, second):
            status, told = request.result()
            assert (status, told["error"]["code"]) == (503, "ending"), told
            assert "the server ends" in told["error"]["message"]
        assert "Traceback" not in server.complaints()
    assert waiting_lessons(own)[0].number == 2
