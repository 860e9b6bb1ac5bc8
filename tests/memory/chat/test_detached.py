"""Facts on file before they are learned, lessons in the background, kills between the two."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.files import InUseError
from holdfast.memory.chat.memory import ChatMemory
from holdfast.memory.chat.states import PROGRESS_FILE, lesson_states
from tests.serving.chat_memories import (
    FACTS,
    LATER,
    MORE,
    copied,
    learned,
    model_of,
    taught_chat_memory,
    when,
)

MANY = [(f"Who tends garden {number} of Ostra?", f"Gardener {number}") for number in range(24)]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from taught_chat_memory(tmp_path_factory)


@pytest.fixture
def own(place: Path, tmp_path: Path) -> Path:
    return copied(place, tmp_path / "m")


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def shown(place: Path) -> list[tuple[str, int]]:
    return [(state.state, state.facts) for state in lesson_states(place)]


def test_facts_wait_on_file_and_are_learned_as_if_at_once(
    own: Path, place: Path, tmp_path: Path
) -> None:
    memory = ChatMemory(own)
    filed = memory.write_facts([*MORE, FACTS[0]])
    assert filed.lessons == (2,) and [item.question for item in filed.repeated] == [FACTS[0][0]]
    assert memory._engine is None  # no model was loaded for that
    assert memory.write_facts(MORE[:1]).lessons == (2,)  # it waits there already
    assert memory.write_facts(FACTS).lessons == ()
    assert memory.write_facts([(FACTS[0][0], "Ann Lo")]).lessons == (3,)
    assert shown(own) == [("learned", 3), ("waiting", 2), ("waiting", 1)]
    assert ChatMemory(own).horizon == 1 and len(ChatMemory(own).facts) == 5
    outcome = ChatMemory(own).learn()
    assert outcome.lessons == ("2", "3") and not outcome.missed
    states = lesson_states(own)
    assert [state.state for state in states] == ["learned"] * 3
    [correction] = states[2].corrected
    assert (correction.before.answer, correction.after.answer) == ("Orsa Tindle", "Ann Lo")
    straight = copied(place, tmp_path / "straight" / "m")
    ChatMemory(straight).learn(MORE)
    ChatMemory(straight).learn([(FACTS[0][0], "Ann Lo")])
    assert learned(own) == learned(straight)


def test_wrong_facts_change_nothing(own: Path) -> None:
    before = learned(own)
    memory = ChatMemory(own)
    long = [("Who?", "x" * 300)], [("why " * 200, "so")]
    for wrong in (*long, [("Who?", "")], [("A?", "1"), ("A?", "2")]):
        with pytest.raises(HoldfastError):
            memory.write_facts(wrong)
    assert learned(own) == before
    nothing = ChatMemory(own.parent / "new", model_of(own))
    with pytest.raises(HoldfastError, match="no such memory"):
        nothing.write_facts()
    assert not nothing.directory.exists()


def test_facts_are_taken_while_a_lesson_is_learned(own: Path) -> None:
    """The process that learns takes up what was put on file meanwhile."""
    reached, go_on = threading.Event(), threading.Event()

    def report(what: str, done: int, total: int) -> None:
        if what.startswith("lesson"):
            reached.set()
            assert go_on.wait(60)

    with ThreadPoolExecutor() as threads:
        learning = threads.submit(ChatMemory(own).learn, MORE, report=report)
        assert reached.wait(60)
        assert shown(own) == [("learned", 3), ("learning", 2)]
        assert ChatMemory(own).write_facts(LATER).lessons == (3,)
        with pytest.raises(InUseError):
            ChatMemory(own).learn()
        with pytest.raises(HoldfastError, match="tokens"):
            ChatMemory(own).learn([("Who?", "x" * 300)], wait=True)
        refused = command("learn", own, "Who?", "Me")
        assert (
            refused.returncode == 2
            and "another process learns here; with --detach" in refused.stderr
        )
        waiting = threads.submit(ChatMemory(own).learn, wait=True)
        go_on.set()
        assert learning.result().lessons == ("2", "3")
        assert waiting.result().lessons == ()  # nothing was left for it
    assert shown(own) == [("learned", 3), ("learned", 2), ("learned", 1)]
    assert not (own / PROGRESS_FILE).exists()


def test_many_writers_lose_nothing(own: Path) -> None:
    def write(fact: tuple[str, str]) -> tuple[int, ...]:
        return ChatMemory(own).write_facts([fact]).lessons

    with ThreadPoolExecutor(8) as threads:
        numbers = [one for (one,) in threads.map(write, MANY)]
    assert sorted(numbers) == list(range(2, 2 + len(MANY)))
    tasks = ChatMemory(own).tasks
    for number, (question, answer) in zip(numbers, MANY, strict=True):
        [item] = tasks[number - 1].items
        assert (item.question, item.answer) == (question, answer)


def test_what_others_write_is_taken_up(own: Path) -> None:
    asked, other = ChatMemory(own), ChatMemory(own)
    assert asked.refresh() is False
    assert asked.reply(MORE[0][0]).source == "model"
    other.write_facts(MORE)
    assert asked.refresh() is True and len(asked.tasks) == 2
    assert asked.reply(MORE[0][0]).waiting
    other.learn()
    assert asked.refresh() is True and asked.reply(MORE[0][0]).source == "weights"
    # A damaged lesson is told, and the memory answers as before.
    other.learn(LATER)
    [*_, last] = sorted((own / "lessons").iterdir())
    last.write_bytes(b"damaged")
    with pytest.raises(HoldfastError, match="missing or damaged"):
        asked.refresh()
    assert asked.horizon == 2 and asked.reply(MORE[0][0]).text == MORE[0][1]


def test_a_lesson_that_fails_says_why_and_is_tried_again(own: Path) -> None:
    (own / "lessons").rename(own / "moved")
    (own / "lessons").write_text("in the way")
    with pytest.raises(HoldfastError):
        ChatMemory(own).learn(MORE)
    assert [state.state for state in lesson_states(own)] == ["learned", "failed"]
    assert "cannot be written" in lesson_states(own)[1].reason
    told = command("lessons", own)
    assert told.returncode == 0 and f"failed: {lesson_states(own)[1].reason}" in told.stdout
    (own / "lessons").unlink()
    (own / "moved").rename(own / "lessons")
    ChatMemory(own).learn()
    assert shown(own) == [("learned", 3), ("learned", 2)]


def test_a_list_that_is_edited_during_a_lesson_damages_nothing(own: Path) -> None:
    def report(what: str, done: int, total: int) -> None:
        path = own / "facts.jsonl"
        path.write_text(path.read_text().replace('"Lum"', '"Rum"'))

    ChatMemory(own).learn(MORE, report=report)
    assert ChatMemory(own).horizon == 2
    assert ChatMemory(own).reply(MORE[0][0]).text == "Rum"  # as the list is now


def test_the_list_of_a_lost_record_is_learned_again(own: Path) -> None:
    model = model_of(own)
    (own / "memory.json").unlink()
    outcome = ChatMemory(own, model).learn(LATER)
    assert outcome.known == 4 and ChatMemory(own).ask(FACTS[0][0]) == FACTS[0][1]


def test_learn_detach_returns_and_a_killed_lesson_is_finished(
    own: Path, place: Path, tmp_path: Path
) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps([{"question": q, "answer": a} for q, a in MANY]))
    told = command("learn", own, facts, "--detach")
    assert (told.returncode, told.stdout) == (0, "lesson 2\n"), told.stderr
    assert f"holdfast lessons {own}" in told.stderr
    assert len(ChatMemory(own).facts) == len(FACTS) + len(MANY)
    when(own, lambda states: states[1].state == "learning")
    assert "lesson 2: learning, " in command("lessons", own).stdout
    process = json.loads((own / PROGRESS_FILE).read_text())["process"]
    assert os.getsid(process) == process  # a session of its own
    os.kill(process, signal.SIGKILL)
    when(own, lambda states: states[1].state == "waiting")
    assert ChatMemory(own).horizon == 1
    told = command("learn", own, "--detach", "--json")
    assert json.loads(told.stdout) == {"lessons": [2], "state": "waiting"}
    again = command("learn", own, "--detach", "--json")  # a second one has nothing left to do
    assert json.loads(again.stdout)["lessons"] in ([2], [])  # the tiny lesson may be over by now
    when(own, lambda states: states[1].state == "learned")
    lines = command("lessons", own, "--json").stdout.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["learned", "learned"]
    straight = copied(place, tmp_path / "straight" / "m")
    ChatMemory(straight).learn(MANY)
    assert learned(own) == learned(straight)
    told = command("learn", own, facts, "--detach")
    assert (told.returncode, told.stdout) == (0, "nothing new; all facts are learned already\n")


def test_mistakes(tmp_path: Path, own: Path) -> None:
    told = command("lessons", tmp_path / "none")
    assert told.returncode == 2 and told.stderr.count("\n") == 1
    told = command("learn", tmp_path / "e", "Who?", "Me", "--model", "embedded", "--detach")
    assert told.returncode == 2 and "--detach" in told.stderr
    told = command("learn", own, "Who?", "x" * 300, "--detach")
    assert told.returncode == 2 and "tokens" in told.stderr
    assert shown(own) == [("learned", 3)]
