"""Two memories become one that answers what both did."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core.errors import InUseError
from holdfast.core.files import lock_directory
from holdfast.memory.forgetting import forget
from holdfast.memory.memory import Memory
from holdfast.memory.merging import Keep, Merged, merge
from holdfast.memory.record import LearnedNeurons, write_record
from holdfast.memory.wordings import wording
from holdfast.streams import Item
from tests.cli.conftest import refused
from tests.made_once import made_once
from tests.memory.consolidation.conftest import Done, done
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY, Copied, Holdfast
from tests.memory.test_killed import files_of

__all__ = ["done"]
pytestmark = pytest.mark.usefixtures("unflushed")
OTHER = [(MONDAY[0][0], "Quill"), (MONDAY[1][0], MONDAY[1][1]), *WEDNESDAY]
Facts = list[tuple[str, str]]


@pytest.fixture(scope="module")
def other_once(
    chat_directory: Path, chat_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A memory of one lesson: another answer to a question, a fact as it is there, a new one."""

    def teach(place: Path) -> None:
        assert not Memory(place / "o", str(chat_directory)).learn(OTHER).missed

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(chat_cache))
        return made_once(tmp_path_factory, "other", teach) / "o"


@pytest.fixture
def other(other_once: Path, tmp_path: Path) -> Path:
    return shutil.copytree(other_once, tmp_path / "other" / "o")


def replied(memory: Memory, facts: Facts) -> Facts:
    replies = (memory.reply(question) for question, _ in facts)
    return [(reply.text, reply.source) for reply in replies]


def from_weights(facts: Facts) -> Facts:
    return [(answer, "weights") for _, answer in facts]


@pytest.mark.parametrize(("keep", "answer"), [("first", MONDAY[0][1]), ("second", "Quill")])
def test_it_answers_what_both_did(
    keep: str, answer: str, copied: Copied, other: Path, tmp_path: Path
) -> None:
    """From the weights, with one of two answers; the memories themselves are not changed."""
    first, out = copied(), tmp_path / "out"
    before = files_of(first), files_of(other)
    merged = merge(Memory(first), Memory(other), out, keep)  # type: ignore[arg-type]
    assert (files_of(first), files_of(other)) == before
    facts = [(MONDAY[0][0], answer), *MONDAY[1:], *TUESDAY, *WEDNESDAY]
    assert merged == Merged(len(facts), 3, 1, (MONDAY[0][0],))
    memory = Memory(out)
    assert replied(memory, facts) == from_weights(facts) and not memory.missed()
    names = ["1", "1 (2)", "2"] if keep == "first" else ["1", "2", "1 (2)"]
    assert [task.name for task in memory.tasks] == names
    assert sum((out / "lessons" / file).is_file() for file in memory.record.files) == 3
    more = [("Who tars the boats?", "Ingo")]
    assert not memory.learn(more).missed
    assert replied(Memory(out), [*facts, *more]) == from_weights([*facts, *more])


def test_copies_that_went_apart_have_their_lessons_once(copied: Copied, tmp_path: Path) -> None:
    """Unless what one of them corrected counts as it was."""
    first, second = copied(), copied()
    facts = [*MONDAY, *TUESDAY]
    merged = merge(Memory(first), Memory(second), tmp_path / "same")
    assert merged == Merged(len(facts), 2, len(facts), ())
    Memory(second).learn(WEDNESDAY)
    merged = merge(Memory(first), Memory(second), tmp_path / "out")
    assert merged == Merged(len(facts) + len(WEDNESDAY), 3, len(facts), ())
    assert replied(Memory(tmp_path / "out"), [*facts, *WEDNESDAY]) == from_weights(
        [*facts, *WEDNESDAY]
    )
    Memory(second).learn([(MONDAY[0][0], "Quill")])
    for keep, answer, lessons in (("first", MONDAY[0][1], 5), ("second", "Quill", 4)):
        merged = merge(Memory(first), Memory(second), tmp_path / keep, keep)  # type: ignore[arg-type]
        assert merged.lessons == lessons
        assert Memory(tmp_path / keep).ask(MONDAY[0][0]) == answer


@pytest.mark.parametrize("keep", [None, "second"])
def test_what_waits_in_the_first_comes_first_and_gives_way(
    keep: Keep | None, copied: Copied, tmp_path: Path
) -> None:
    first, second, out = copied(), copied(), tmp_path / "out"
    Memory(first).write_facts([("Who rows?", "Una"), *([(MONDAY[0][0], "Quill")] if keep else [])])
    Memory(second).write_facts([("Who sows?", "Ann")])
    merge(Memory(first), Memory(second), out, keep)
    waiting = [item.question for task in Memory(out).tasks[2:] for item in task.items]
    assert waiting == ["Who rows?", "Who sows?"]
    assert MONDAY[0] in [(fact.question, fact.answer) for fact in Memory(out).facts]


@pytest.mark.parametrize("keep", ["first", "second"])
def test_what_is_forgotten_afterwards_is_in_none_of_the_lessons(
    keep: str, copied: Copied, other: Path, tmp_path: Path
) -> None:
    """Neither what both had, nor the answer that did not count."""
    out = tmp_path / "out"
    merge(Memory(copied()), Memory(other), out, keep)  # type: ignore[arg-type]
    memory = Memory(out)
    forgetting = forget(memory, [MONDAY[0][0], MONDAY[1][0]])
    assert len(forgetting.lessons) == 2
    remaining_facts = [*MONDAY[2:], *TUESDAY, *WEDNESDAY]
    assert replied(Memory(out), remaining_facts) == from_weights(remaining_facts)
    assert {memory.reply(question).source for question, _ in MONDAY[:2]} == {"model"}
    written = b"".join(files_of(out).values())
    assert not any(text.encode() in written for text in ("Quill", MONDAY[0][1], MONDAY[0][0]))


def test_an_adapter_of_several_lessons_is_taken_once(
    done: Done, other: Path, tmp_path: Path
) -> None:
    """It goes on to read whole turns; what waits in either waits there, and neurons stay behind."""
    second = Memory(other)
    second.write_facts([("Who sold the oars?", "Nan")])
    record = Memory(done.place).record
    neurons = LearnedNeurons(record.lessons[0].file, 2, 5, ())
    first = shutil.copytree(done.place, tmp_path / "first" / "m")
    write_record(first, replace(record, neurons=neurons))
    Memory(first).write_facts([("Who sold the rope?", "Ann")])
    merge(Memory(first), Memory(other), tmp_path / "out", keep="second")
    memory = Memory(tmp_path / "out")
    assert [lesson.whole_turn for lesson in memory.record.lessons] == [True, True, False]
    assert len(memory.record.files) == 2 and memory.record.neurons is None
    facts = [(MONDAY[0][0], "Quill"), *MONDAY[1:], *TUESDAY, *WEDNESDAY]
    assert replied(memory, facts) == from_weights(facts)
    waiting = [("Who sold the rope?", "Ann"), ("Who sold the oars?", "Nan")]
    assert [(item.question, item.answer) for item in memory.facts[-2:]] == waiting
    assert memory.horizon == 3 and replied(memory, waiting) == [("Ann", "list"), ("Nan", "list")]
    assert not memory.learn().missed
    assert replied(Memory(tmp_path / "out"), waiting) == from_weights(waiting)


def test_what_the_weights_missed_stays_missed(copied: Copied, other: Path) -> None:
    """Of the memory whose answer counts."""
    first = Memory(copied())
    key = MONDAY[0][0]
    for memory in (first, Memory(other)):
        lessons = memory.record.lessons
        missed = replace(lessons[0], missed=(key,))
        write_record(memory.directory, replace(memory.record, lessons=(missed, *lessons[1:])))
    write_record(first.directory, first.record)
    for keep, expected in (("first", []), ("second", [key])):
        out = other.parent / keep
        merge(Memory(first.directory), Memory(other), out, keep)  # type: ignore[arg-type]
        assert [item.question for item in Memory(out).missed()] == expected


def test_a_wording_that_the_other_asks_is_left_out(
    copied: Copied, other: Path, tmp_path: Path
) -> None:
    """It is a question of its own there, or another's wording."""
    first = copied()
    fact = Item("Who keeps the bees?", "Otto")
    Memory(first).learn([fact])
    rows = [wording(fact, WEDNESDAY[0][0]), wording(fact, "Whose are the bees?")]
    with (first / "facts.jsonl").open("a", encoding="utf-8") as file:
        for row in rows:
            values = {"question": row.question, "answer": row.answer, "details": row.details}
            file.write(json.dumps({**values, "task": "bees"}) + "\n")
    merge(Memory(first), Memory(other), tmp_path / "out", keep="first")
    asked = [item.question for task in Memory(tmp_path / "out").tasks for item in task.items]
    assert asked.count(WEDNESDAY[0][0]) == 1 and "Whose are the bees?" in asked


def test_questions_that_marks_alone_tell_apart_are_warned_of(
    copied: Copied, other: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of those that the first had both of, learning them warned."""
    first = copied()
    question, known = (text.rstrip("?").lower() for text in (WEDNESDAY[0][0], MONDAY[1][0]))
    Memory(first).learn([(question, "nobody"), (known, "nobody")])
    caplog.clear()
    merge(Memory(first), Memory(other), tmp_path / "out", keep="first")
    warnings = [record.getMessage() for record in caplog.records if "are two facts" in record.msg]
    assert len(warnings) == 1 and question in warnings[0] and WEDNESDAY[0][0] in warnings[0]


def test_the_command_and_what_cannot_be_merged(
    holdfast: Holdfast, copied: Copied, other: Path, tmp_path: Path
) -> None:
    """Every refusal is one line, and nothing is written."""
    first, out, none = copied(), tmp_path / "out", tmp_path / "none"
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    bare = shutil.copytree(other, tmp_path / "bare")
    shutil.rmtree(bare / "lessons")
    fresh, alien = copied(), copied()
    write_record(fresh, replace(Memory(fresh).record, lessons=()))
    write_record(alien, replace(Memory(alien).record, fingerprint="x"))
    for memory, second, place, text in (
        (first, other, out, f"{other}: has another answer than {first} to 1 of its questions"),
        (first, other, full, "holds mine.txt; choose an empty or a new directory"),
        (first, other, first / "sub", f"{first / 'sub'}: is within {first}"),
        (first, none, out, f"{none}: no such memory"),
        (first, first, out, "is both memories; give another one"),
        (first, fresh, out, f"{fresh}: has learned nothing yet"),
        (first, alien, out, "was taught to another model"),
    ):
        outcome = holdfast("merge", memory, second, place)
        refused(outcome, text)
        assert outcome.out == ""
    refused(holdfast("merge", first, bare, out, "--keep", "first"), "missing or damaged")
    with lock_directory(other), pytest.raises(InUseError):
        merge(Memory(first), Memory(other), out, keep="first")
    assert not out.exists()
    outcome = holdfast("merge", first, other, out, "--keep", "second")
    assert outcome.out.splitlines() == [
        "6 facts in 3 lessons", "1 of them in both",
        "1 had another answer there; kept is that of the second memory", str(out),
    ]  # fmt: skip
    outcome = holdfast("merge", first, other, tmp_path / "again", "--keep", "second", "--json")
    assert json.loads(outcome.out)["settled"] == [MONDAY[0][0]]
