"""Lessons of a served memory: taught by request, cancelled, killed, and what is kept of them."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.serve import tell_waiting
from holdfast.core.errors import HoldfastError
from holdfast.memory.memory import Memory
from holdfast.memory.states import (
    PROGRESS_FILE,
    LessonState,
    cancel_lessons,
    lesson_states,
    waiting_lessons,
)
from holdfast.serving.refusal import RefusalError
from holdfast.serving.teacher import Teacher, check_room
from holdfast.streams.load import facts_of_python
from tests.cli.conftest import refused
from tests.serving.chat_memories import (
    FACTS,
    LATER,
    MANY,
    MORE,
    NEW,
    UNTAUGHT,
    as_facts,
    copied,
    learned,
    tasks,
    when,
)
from tests.serving.served import serving

WAIT = "/facts?wait=true"


def learning(directory: Path, besides: int = 0) -> int:
    """The process that learns, once it does and is another one than ``besides``."""
    while True:
        when(directory, lambda states: any(state.state == "learning" for state in states))
        process = int(json.loads((directory / PROGRESS_FILE).read_text())["process"])
        if process != besides:
            return process


def test_one_request_has_a_bound() -> None:
    many = facts_of_python(tasks(*([(f"Who is {n}?", "A")] for n in range(33))))
    long = facts_of_python([(f"Who is {n}?", "A") for n in range(400)])
    check_room([], long, 1)
    given = [{"question": f"{n}?", "answer": "A", "paraphrases": ["a", "b"]} for n in range(400)]
    waiting = [LessonState(n, str(n), "waiting", 301) for n in range(32)]
    for before, posted, count, status in (
        ([], many, 0, 413),
        ([], long, 2, 413),
        ([], facts_of_python(given), 1, 413),
        (waiting, facts_of_python(NEW), 0, 503),
        (waiting[:2], long, 0, 503),
    ):
        with pytest.raises(RefusalError) as error:
            check_room(before, posted, count)
        assert error.value.status == status
        assert ("DELETE /lessons/N" in str(error.value)) is (status == 503)


def test_lessons_go_on_in_the_background(directory: Path) -> None:
    with serving(directory, "--teach") as server:
        status, answer = server.post("/facts", as_facts(MORE))
        assert (status, answer["lesson"], answer["state"]) == (202, 2, "waiting")
        assert MORE[0][0] in (directory / "facts.jsonl").read_text()
        assert server.ask(MORE[0][0])["text"] == MORE[0][1]  # from the list, until it is learned
        status, answer = server.post("/facts", as_facts([(FACTS[0][0], "Ann Lo")]))
        assert (status, answer["lesson"]) == (202, 3)
        corrected = {"question": FACTS[0][0], "is": "Ann Lo", "was": "Orsa Tindle"}
        assert answer["corrected"] == [corrected] and answer["notices"] == []
        states = [lesson["state"] for lesson in server.request("GET", "/lessons")[1]["lessons"]]
        assert states[0] == "learned" and set(states[1:]) <= {"waiting", "learning", "learned"}
        facts = server.facts()
        assert len(facts["facts"]) == 5 and facts["teach"] is True
        assert server.ask(FACTS[1][0])["text"] == FACTS[1][1]  # meanwhile
        when(directory, lambda states: all(state.state == "learned" for state in states))
        assert server.ask(MORE[0][0])["holdfast"]["source"] == "weights"
        assert server.ask(FACTS[0][0])["text"] == "Ann Lo"
        answer = server.request("GET", "/lessons/2")[1]
        assert (answer["state"], answer["learned"], answer["missed"]) == ("learned", 2, [])
        # The same facts again: there is nothing to wait for.
        status, answer = server.post("/facts", as_facts(MORE))
        assert (status, answer["lesson"], answer["state"]) == (200, None, "learned")
        assert answer["repeated"] == [question for question, _ in MORE]
        worded = {**as_facts(MORE[:1])[0], "paraphrases": [MORE[1][0]]}
        status, answer = server.post("/facts", worded)
        assert status == 200 and "is left out as a wording of" in answer["notices"][0]
        answer = server.post("/facts", as_facts([(MORE[0][0].lower(), "Bo")]))[1]
        assert "differ in case or punctuation alone" in answer["notices"][0]
        before = learned(directory)
        wrong: list[object] = [[], 7, [{"question": "Who?"}], as_facts([("Who?", "x" * 300)]),
                               tasks(*([(f"Who is {n}?", "A")] for n in range(33)))]  # fmt: skip
        assert [server.post("/facts", body)[0] for body in wrong] == [400, 400, 400, 400, 413]
        assert learned(directory) == before


def test_killed_lessons_and_servers_lose_nothing(
    directory: Path, chat_memory: Path, tmp_path: Path
) -> None:
    with serving(directory, "--teach") as first:
        assert first.post("/facts", as_facts(MORE))[0] == 202
        process = learning(directory)
        os.kill(process, signal.SIGKILL)  # the server starts another one
        process = learning(directory, besides=process)
        first.process.kill()
        first.process.wait()
        assert first.lessons.alive() == [process]
        with serving(directory, "--teach") as second, ThreadPoolExecutor() as threads:
            # It waits for the lesson that goes on, and finishes what that leaves.
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            when(directory, lambda states: all(state.state == "learned" for state in states))
            assert second.ask(MORE[1][0])["text"] == MORE[1][1]
            straight = copied(chat_memory, tmp_path / "straight" / "m")
            Memory(straight).learn(MORE)
            assert learned(directory) == learned(straight)
            waiting = threads.submit(second.post, WAIT, as_facts(LATER))
            process = learning(directory)
            os.kill(process, signal.SIGKILL)
            os.kill(learning(directory, besides=process), signal.SIGKILL)
            status, answer = waiting.result()
            why = "twice killed by SIGKILL, as when memory runs out"
            assert status == 500 and why in answer["error"]["message"]
            assert second.request("GET", "/lessons/3")[1]["state"] == "failed"
            assert second.ask(FACTS[0][0])["text"] == FACTS[0][1]
            # Teaching again tries again.
            status, answer = second.post(WAIT, as_facts(NEW))
            assert (status, answer["lesson"], answer["missed"]) == (200, 4, [])
            assert [state.state for state in lesson_states(directory)] == ["learned"] * 4


def test_cancelling_from_the_command_line(directory: Path, tmp_path: Path, holdfast: Any) -> None:
    before = learned(directory)
    Memory(directory).write_facts(tasks(MORE, NEW, LATER))
    outcome = holdfast("lessons", directory, "--cancel", "3")
    assert outcome.out == 'cancelled lesson 3 "task 1": waiting, 1 fact\n'
    assert [state.name for state in lesson_states(directory)] == ["1", "task 0", "task 2"]
    for wrong, message in (("1", "lesson 1 is learned"),
                           ("9", "there is no lesson 9; 3 are on file"),
                           ("2-1", "give 3, 3-9 or all"),
                           ("9" * 4301, "is no lesson"), ("x", "give 3, 3-9 or all")):  # fmt: skip
        refused(holdfast("lessons", directory, "--cancel", wrong), message)
    assert len(holdfast("lessons", directory, "--cancel", "all").out.splitlines()) == 2
    assert learned(directory) == before
    assert waiting_lessons(directory) == []
    with pytest.raises(HoldfastError, match="no such memory"):
        cancel_lessons(tmp_path / "nothing")


def test_cancelling_by_request_and_the_end_of_the_server(directory: Path) -> None:
    with serving(directory, "--teach") as server, ThreadPoolExecutor() as threads:
        waiting = threads.submit(server.post, WAIT, tasks(MANY, NEW, LATER))
        learning(directory)
        status, answer = server.request("DELETE", "/lessons/3")
        assert (status, [lesson["name"] for lesson in answer["cancelled"]]) == (200, ["task 1"])
        status, answer = waiting.result()
        assert (status, answer["error"]["code"]) == (409, "cancelled")
        status, answer = server.request("DELETE", "/lessons/2")  # while it is learned
        assert status == 200 and answer["cancelled"][0]["state"] == "learning"
        when(directory, lambda states: [state.state for state in states] == ["learned"] * 2)
        assert [state.name for state in lesson_states(directory)] == ["1", "task 2"]
        assert server.request("DELETE", "/lessons/2")[0] == 409
        assert server.request("DELETE", "/lessons/3")[0] == 404
        assert server.request("DELETE", "/lessons")[1] == {"cancelled": []}
        assert server.ask(LATER[0][0])["text"] == LATER[0][1]
        first = threads.submit(server.post, WAIT, tasks(MANY))
        learning(directory)
        second = threads.submit(server.post, WAIT, tasks(NEW))
        when(directory, lambda states: len(states) == 4)
        begin = time.monotonic()
        server.process.terminate()
        assert server.process.wait(timeout=30) == 0
        assert time.monotonic() - begin < 2.5
        for request in (first, second):
            status, answer = request.result()
            assert (status, answer["error"]["code"]) == (503, "ending"), answer
            assert "the server ends" in answer["error"]["message"]
        assert "Traceback" not in server.complaints()
    assert [state.number for state in waiting_lessons(directory)] == [3, 4]


def test_what_waits_is_said_and_another_process_learns_it(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_waiting(directory, teach=False)
    assert capsys.readouterr().err == ""
    Memory(directory).write_facts(MORE)
    tell_waiting(directory, teach=False)
    assert capsys.readouterr().err == (
        f"waiting: 1 lesson on file, 2 facts; not learned; holdfast learn {directory} learns them, "
        f"holdfast lessons {directory} --cancel all drops them\n"
    )
    with serving(directory) as server:
        assert server.request("GET", "/lessons")[1]["lessons"][1]["state"] == "waiting"
        facts = {fact["question"]: fact["source"] for fact in server.facts()["facts"]}
        assert facts[MORE[0][0]] == "waiting"
        answer = server.ask(MORE[0][0])
        assert (answer["text"], answer["holdfast"]["source"]) == (MORE[0][1], "list")
        assert answer["holdfast"]["waiting"] is True
        assert server.request("DELETE", "/lessons")[0] == 403  # without --teach
        Memory(directory).learn(LATER)  # what waits comes first
        assert server.ask(MORE[0][0])["holdfast"]["source"] == "weights"


def test_a_new_memory_is_taught_and_held_from_its_first_lesson_on(
    chat_memory: Path, tmp_path: Path
) -> None:
    place = tmp_path / "m"
    with serving(place, "--teach", "--model", Memory(chat_memory).model) as server:
        assert server.facts()["facts"] == []
        answer = server.ask(UNTAUGHT)  # the untouched model answers
        assert answer["text"] == Memory(chat_memory).reply(UNTAUGHT).text
        assert (answer["holdfast"]["source"], answer["holdfast"]["nearest"]) == ("model", [])
        assert not place.exists()
        assert server.request("GET", "/lessons")[1] == {"lessons": []}
        assert server.post(WAIT, as_facts(NEW))[1]["lesson"] == 1
        assert server.ask(NEW[0][0])["text"] == NEW[0][1]
        place.rename(tmp_path / "away")
        assert server.post(WAIT, as_facts(LATER))[0] == 410
        assert not place.exists()


@pytest.mark.parametrize("moment", ["opened", "before", "within", "after"])
def test_a_lesson_leaves_nothing_where_its_memory_was(
    moment: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moved once it is opened, before the first step, between two, and before the commit."""
    from holdfast.memory import memory as module

    learn_batch = module.learn_batch

    def moving(*arguments: Any) -> Any:
        if moment == "before":
            directory.rename(tmp_path / "away")
        outcome = learn_batch(*arguments)
        if moment == "after":
            directory.rename(tmp_path / "away")
        return outcome

    def report(phase: str, done: int, total: int) -> None:
        if moment == "within" and directory.exists():
            directory.rename(tmp_path / "away")

    monkeypatch.setattr(module, "learn_batch", moving)
    memory = Memory(directory)
    memory.load()
    if moment == "opened":
        directory.rename(tmp_path / "away")
        with pytest.raises(HoldfastError, match="was moved or removed"):
            memory.write_facts(LATER)
    with pytest.raises(HoldfastError, match="was moved or removed"):
        memory.learn(LATER, report=report)
    assert not directory.exists()
    last = lesson_states(tmp_path / "away")[-1].state
    assert last == "learned" if moment == "opened" else last in ("waiting", "learning")


def test_a_full_disk(directory: Path) -> None:
    """507, and the facts are learned later exactly if it says so."""
    # Room for the list of facts, or not even for that.
    room = max(path.stat().st_size for path in directory.rglob("*.safetensors")) // 2
    with serving(directory, "--teach") as server:

        def limit(size: int) -> None:
            limits = (size, resource.RLIM_INFINITY)
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, limits)

        for fact, on_file, size in ((MORE[0], False, 60), (LATER[0], True, room)):
            limit(size)
            status, answer = server.post(WAIT, as_facts([fact]))
            assert status == 507, answer
            assert answer["error"]["code"] == "no_space" and answer["error"]["kept"] is on_file
            assert ("learned by the next lesson" in answer["error"]["message"]) is on_file
            assert (fact[0] in (directory / "facts.jsonl").read_text()) is on_file
        limit(resource.RLIM_INFINITY)
        assert server.post(WAIT, as_facts(NEW))[0] == 200
    asked = [item.question for item in Memory(directory).facts]
    assert LATER[0][0] in asked and MORE[0][0] not in asked


def test_a_memory_that_is_damaged_while_its_server_starts(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request is told so; the server, which has printed its address, goes on."""
    (directory / "memory.json").write_text("{")

    async def story() -> None:
        teacher: Any = Teacher(directory, lambda _: asyncio.sleep(0))
        teacher.start()
        await asyncio.sleep(0)
        await asyncio.wait_for(teacher._learning, 20)

    asyncio.run(story())
    assert "what is on file could not be learned" in caplog.text


def test_no_address_is_printed_where_the_memory_cannot_be_taught(
    holdfast: Any, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "lessons").rename(tmp_path / "elsewhere")
    (directory / "lessons").symlink_to(tmp_path / "elsewhere")
    outcome = holdfast("serve", directory, "--teach", "--port", "0")
    refused(outcome, f"{directory / 'lessons'}: is a link to")
    assert outcome.out == ""
    directory.joinpath("lessons").unlink()
    (tmp_path / "elsewhere").rename(directory / "lessons")

    def gone(_: Path) -> Any:
        raise HoldfastError("memory.json: no such file")

    monkeypatch.setattr("holdfast.memory.states.waiting_lessons", gone)
    outcome = holdfast("serve", directory, "--teach", "--port", "0")
    refused(outcome, "no such file")
    assert outcome.out == ""
    refused(holdfast("learn", tmp_path / "none", *NEW[0], "--existing"), "no such memory")
    assert not (tmp_path / "none").exists()
