"""Facts on file before they are learned, lessons in the background, kills between the two."""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError, InUseError
from holdfast.core.files import read_json
from holdfast.memory.detached import learning_command
from holdfast.memory.memory import Memory
from holdfast.memory.record import PROGRESS_FILE, read_record, write_record
from holdfast.memory.states import LessonProgress, cancel_lessons, lesson_states
from holdfast.streams import Task
from holdfast.streams.batches import FACTS_FILE, write_batches
from tests.cli.conftest import refused
from tests.memory.memories import Holdfast
from tests.serving.chat_memories import FACTS, LATER, MANY, MORE, copied, learned, when


@pytest.fixture
def place(chat_memory: Path, tmp_path: Path) -> Path:
    return copied(chat_memory, tmp_path / "m")


def states_of(place: Path) -> list[tuple[str, int]]:
    return [(state.state, state.facts) for state in lesson_states(place)]


def test_facts_wait_on_file_and_are_learned_as_if_at_once(
    place: Path, chat_memory: Path, tmp_path: Path
) -> None:
    memory = Memory(place)
    filed = memory.write_facts([*MORE, FACTS[0]])
    assert filed.lessons == (2,) and [item.question for item in filed.repeated] == [FACTS[0][0]]
    assert memory._engine is None  # no model was loaded for that
    assert memory.write_facts(MORE[:1]).lessons == (2,)  # it waits there already
    assert memory.write_facts(FACTS).lessons == ()
    assert memory.write_facts([(FACTS[0][0], "Ann Lo")]).lessons == (3,)
    assert states_of(place) == [("learned", 3), ("waiting", 2), ("waiting", 1)]
    assert Memory(place).horizon == 1 and len(Memory(place).facts) == 5
    outcome = Memory(place).learn()
    assert outcome.lessons == ("2", "3") and not outcome.missed
    states = lesson_states(place)
    assert [state.state for state in states] == ["learned"] * 3
    [correction] = states[2].corrected
    assert (correction.before.answer, correction.after.answer) == ("Orsa Tindle", "Ann Lo")
    straight = copied(chat_memory, tmp_path / "straight" / "m")
    Memory(straight).learn(MORE)
    Memory(straight).learn([(FACTS[0][0], "Ann Lo")])
    assert learned(place) == learned(straight)


def test_a_cancelled_fact_is_not_learned_in_other_words(place: Path) -> None:
    """They would be answered, but stand under no fact that can be forgotten."""
    before = learned(place)
    (question, answer), (corrected, _) = MORE[0], FACTS[0]
    for fact, words in ((question, answer), (corrected, "Ann Lo")):
        memory = Memory(place)
        memory.write_facts([(fact, words)])
        worded = {"question": fact, "answer": words, "paraphrases": [f"Tell me, {fact}"]}
        memory.write_facts([worded])
        other = {"question": MORE[1][0], "answer": MORE[1][1], "paraphrases": [f"Say, {fact}"]}
        memory.write_facts([other])
        assert states_of(place)[1:] == [("waiting", 1)] * 3
        assert [state.number for state in cancel_lessons(place, [2])] == [2]
        assert [state.name for state in lesson_states(place)] == ["1", "4"]
        assert len(Memory(place).tasks[1].items) == 2  # with its own fact it keeps its wording
        cancel_lessons(place)
        assert learned(place) == before


def test_facts_are_taken_while_a_lesson_is_learned(place: Path, holdfast: Holdfast) -> None:
    """The process that learns takes up what was put on file meanwhile."""
    reached, go_on = threading.Event(), threading.Event()

    def report(label: str, done: int, total: int) -> None:
        if label.startswith("lesson"):
            reached.set()
            assert go_on.wait(60)

    with ThreadPoolExecutor() as threads:
        learning = threads.submit(Memory(place).learn, MORE, report=report)
        assert reached.wait(60)
        assert states_of(place) == [("learned", 3), ("learning", 2)]
        assert Memory(place).write_facts(LATER).lessons == (3,)
        with pytest.raises(InUseError):
            Memory(place).learn()
        with pytest.raises(HoldfastError, match="tokens"):
            Memory(place).learn([("Who?", "x" * 300)], wait=True)
        refused = holdfast("learn", place, "Who?", "Me")
        assert refused.status == 2 and "another process learns here; with --detach" in refused.err
        waiting = threads.submit(Memory(place).learn, wait=True)
        go_on.set()
        assert learning.result().lessons == ("2", "3")
        assert waiting.result().lessons == ()  # nothing was left for it
    assert states_of(place) == [("learned", 3), ("learned", 2), ("learned", 1)]
    assert not (place / PROGRESS_FILE).exists()


def test_what_others_write_is_taken_up(place: Path) -> None:
    asked, other = Memory(place), Memory(place)
    assert asked.refresh() is False
    assert asked.reply(MORE[0][0]).source == "model"
    other.write_facts(MORE)
    assert asked.refresh() is True and len(asked.tasks) == 2
    assert asked.reply(MORE[0][0]).waiting
    (fact,) = asked.taken_for([MORE[0][0]])  # what contradicts it is told too
    assert fact is not None and fact.answer == MORE[0][1]
    other.learn()
    assert asked.refresh() is True and asked.reply(MORE[0][0]).source == "weights"
    # A damaged lesson is told, and the memory answers as before.
    other.learn(LATER)
    [*_, last] = sorted((place / "lessons").iterdir())
    last.write_bytes(b"damaged")
    with pytest.raises(HoldfastError, match="missing or damaged"):
        asked.refresh()
    assert asked.horizon == 2 and asked.reply(MORE[0][0]).text == MORE[0][1]


def test_a_forgetting_is_committed_between_the_record_and_the_list(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, [task] = read_record(place), Memory(place).tasks
    rest = Task(task.name, task.items[1:])
    lesson = replace(before.lessons[0], fingerprint=rest.fingerprint)

    def read(path: Path) -> Any:
        values = read_json(path)
        monkeypatch.undo()
        write_batches(place / FACTS_FILE, [rest])
        write_record(place, replace(before, lessons=(lesson,)))
        return values

    monkeypatch.setattr("holdfast.memory.record.read_json", read)
    assert Memory(place).tasks == (rest,)
    write_batches(place / FACTS_FILE, [task])
    write_record(place, before)
    monkeypatch.setattr("holdfast.memory.record.read_json", read)
    assert [state.facts for state in lesson_states(place)] == [2]


def test_a_lesson_that_fails_says_why_and_is_tried_again(place: Path, holdfast: Holdfast) -> None:
    (place / "lessons").rename(place / "moved")
    (place / "lessons").write_text("in the way")
    with pytest.raises(HoldfastError):
        Memory(place).learn(MORE)
    assert [state.state for state in lesson_states(place)] == ["learned", "failed"]
    assert "cannot be written" in lesson_states(place)[1].reason
    outcome = holdfast("lessons", place)
    assert outcome.status == 0 and f"failed: {lesson_states(place)[1].reason}" in outcome.out
    (place / "lessons").unlink()
    (place / "moved").rename(place / "lessons")
    Memory(place).learn()
    assert states_of(place) == [("learned", 3), ("learned", 2)]


def test_a_list_that_is_edited_during_a_lesson_damages_nothing(place: Path) -> None:
    def report(label: str, done: int, total: int) -> None:
        path = place / "facts.jsonl"
        path.write_text(path.read_text().replace('"Lum"', '"Rum"'))

    Memory(place).learn(MORE, report=report)
    assert Memory(place).horizon == 2
    assert Memory(place).reply(MORE[0][0]).text == "Rum"  # as the list is now


def test_the_list_of_a_lost_record_is_learned_again(place: Path, holdfast: Holdfast) -> None:
    """Where one says of which model, not by a lesson in the background."""
    model = Memory(place).model
    (place / "memory.json").unlink()
    refused(holdfast(*learning_command(place)[4:]), "no such memory")
    outcome = Memory(place, model).learn(LATER)
    assert outcome.known == 4 and Memory(place).ask(FACTS[0][0]) == FACTS[0][1]


def test_learn_detach_returns_and_a_killed_lesson_is_finished(
    place: Path, chat_memory: Path, tmp_path: Path, holdfast: Holdfast
) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps([{"question": q, "answer": a} for q, a in MANY]))
    outcome = holdfast("learn", place, facts, "--detach")
    assert (outcome.status, outcome.out) == (0, "lesson 2\n"), outcome.err
    assert f"holdfast lessons {place}" in outcome.err
    assert len(Memory(place).facts) == len(FACTS) + len(MANY)
    when(place, lambda states: states[1].state == "learning")
    assert "lesson 2: learning, " in holdfast("lessons", place).out
    process = json.loads((place / PROGRESS_FILE).read_text())["process"]
    assert os.getsid(process) == process  # a session of its own
    os.kill(process, signal.SIGKILL)
    when(place, lambda states: states[1].state == "waiting")
    assert Memory(place).horizon == 1
    outcome = holdfast("learn", place, "--detach", "--json")
    assert json.loads(outcome.out) == {"lessons": [2], "state": "waiting", "notices": []}
    when(place, lambda states: states[1].state == "learned")
    lines = holdfast("lessons", place, "--json").out.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["learned", "learned"]
    straight = copied(chat_memory, tmp_path / "straight" / "m")
    Memory(straight).learn(MANY)
    assert learned(place) == learned(straight)
    outcome = holdfast("learn", place, facts, "--detach")
    assert (outcome.status, outcome.out) == (0, "nothing new; all facts are learned already\n")


def test_what_stands_behind_a_failed_lesson_waits_once_that_is_cancelled(place: Path) -> None:
    """It takes its number, and not its failure."""
    for facts in ([("Who sold the tar?", "Ann")], [("Who sold the rope?", "Ben")]):
        Memory(place).write_facts(facts)
    progress = LessonProgress(place)
    for number, second in ((1, "waiting"), (2, "failed")):  # what is said of another is not its own
        progress.begin(number)
        progress.failed("the disk is full")
        assert lesson_states(place)[1].state == second
    assert [state.state for state in lesson_states(place)] == ["learned", "failed", "waiting"]
    assert [state.state for state in cancel_lessons(place, [2])] == ["failed"]
    assert [state.state for state in lesson_states(place)] == ["learned", "waiting"]
