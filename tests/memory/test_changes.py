"""What changed between two memories, or since a lesson: facts, and everyday answers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.changes import (
    AnswerChanges,
    MemoryVersion,
    after_lesson,
    answer_changes,
    changes,
    fact_changes,
    now,
)
from holdfast.memory.evaluation.probes import EverydayQuestion
from holdfast.memory.forgetting import forget
from holdfast.memory.memory import Memory
from holdfast.memory.record import LearnedNeurons, write_record
from holdfast.report.pages import plot_changes, write_changes
from holdfast.streams import Item
from tests.memory.memories import MONDAY, TUESDAY, Holdfast

pytestmark = pytest.mark.usefixtures("unflushed")
ASKED = [EverydayQuestion(question, (answer,)) for question, answer in TUESDAY]


def test_facts_by_their_question() -> None:
    before = [Item("Who is A?", "x"), Item("Who is B?", "y"), Item("C?", "z")]
    after = [Item("Who is A?", "x"), Item("Who is B?", "w"), Item("D?", "v")]
    changed = fact_changes(before, after)
    assert [item.question for item in changed.added] == ["D?"]
    assert [(was.answer, is_now.answer) for was, is_now in changed.corrected] == [("y", "w")]
    assert [item.question for item in changed.forgotten] == ["C?"]
    assert changed.unchanged == 1


def test_since_a_lesson(memory: Memory) -> None:
    """Its facts were not known then, and so their questions were answered otherwise."""
    changed = changes(after_lesson(memory, 1), now(memory), ASKED)
    assert [(item.question, item.answer) for item in changed.facts.added] == TUESDAY
    assert (changed.facts.corrected, changed.facts.forgotten) == ((), ())
    assert changed.facts.unchanged == len(MONDAY)
    answers = changed.answers
    assert answers is not None
    assert (answers.asked, answers.before, answers.after) == (len(TUESDAY), 0, len(TUESDAY))
    assert [answer.question for answer in answers.others] == [question for question, _ in TUESDAY]
    assert all(answer.is_right and not answer.was_right for answer in answers.others)
    assert (answers.weights_before, answers.weights_after, answers.bits) == (None, None, None)


def test_what_was_forgotten_is_seen_beside_a_copy(place: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(place, tmp_path / "copy")
    memory = Memory(place)
    forget(memory, [MONDAY[0][0]])
    asked = [EverydayQuestion(question, (answer,)) for question, answer in MONDAY]
    changed = changes(now(Memory(copy)), now(memory), asked)
    assert [item.question for item in changed.facts.forgotten] == [MONDAY[0][0]]
    assert not changed.facts.added and not changed.facts.corrected
    assert changed.answers is not None
    assert [answer.question for answer in changed.answers.others] == [MONDAY[0][0]]
    assert changed.answers.before - changed.answers.after == 1


def test_one_set_of_weights_is_asked_alone(two_lessons: Path) -> None:
    """The lesson's adapter stands for one of whole turns: right is counted, and bits are taken."""
    memory = Memory(two_lessons)
    plain = now(memory)
    first = after_lesson(memory, 1)
    alone = MemoryVersion(first.name, first.facts, first.sides, one_set=True)
    told: dict[str, tuple[int, int]] = {}
    changed = answer_changes(alone, plain, ASKED, lambda what, *counts: told.update({what: counts}))
    assert told == {"asking, before": (100, 100), "asking, after": (100, 100)}
    assert changed.weights_before is not None and changed.weights_after is None
    assert changed.weights_before.right == 0 and changed.weights_before.bits > 1
    assert changed.bits is not None and changed.bits > 1
    assert not plain.one_set


def test_an_adapter_of_whole_turns_is_one_set(memory: Memory) -> None:
    record = memory.record
    file = record.lessons[0].file
    lessons = tuple(replace(lesson, file=file, whole_turn=True) for lesson in record.lessons)
    write_record(memory.directory, replace(record, lessons=lessons))
    assert now(Memory(memory.directory)).one_set
    earlier = after_lesson(Memory(memory.directory), 1)
    assert earlier.one_set
    with pytest.raises(HoldfastError, match="share one adapter since they were consolidated"):
        earlier.sides()


def test_neurons_that_lack_a_lesson_are_not_one_set(memory: Memory) -> None:
    for lessons in (1, 2):
        neurons = LearnedNeurons("neurons.safetensors", lessons, 2 * lessons, ())
        write_record(memory.directory, replace(memory.record, neurons=neurons))
        assert now(Memory(memory.directory)).one_set == (lessons == 2)


def test_a_memory_that_knows_nothing(chat_directory: Path, tmp_path: Path) -> None:
    memory = Memory(tmp_path / "new", str(chat_directory))
    memory.write_facts(MONDAY)
    with pytest.raises(HoldfastError, match="has learned nothing yet"):
        now(memory)


VALUES = {
    "before": "a",
    "after": "b",
    "facts": {
        "added": [{"question": "Who is <b>A</b>?", "answer": "x"}],
        "corrected": [{"question": "B?", "answer": "w", "before": "y"}],
        "forgotten": [],
        "unchanged": 7,
    },
    "answers": {
        **vars(AnswerChanges(20, 13, 12, ())),
        "others": [
            {
                "question": "C?",
                "before": "one",
                "after": "two",
                "was_right": True,
                "is_right": False,
            }
        ],
        "weights_before": {"right": 11, "bits": 1.25},
        "bits": 1.2,
    },
}


TEXT = "lain text is read by the untouched model, so that is unchanged"


def test_the_page(tmp_path: Path) -> None:
    page = write_changes(VALUES, tmp_path / "out").read_text()
    assert json.loads((tmp_path / "out" / "diff.json").read_text()) == VALUES
    for text in (
        "Who is &lt;b&gt;A&lt;/b&gt;?", "Corrected (1)", '<td class="wrap">y</td>', "7 unchanged",
        "13 were answered right before and 12 are now", "one (right)", "11 right, 1.250 bits",
    ):  # fmt: skip
        assert text in page
    assert "Forgotten (" not in page and "http://" not in page.replace("http://www.w3.org", "")
    assert TEXT not in page
    lessons = {**VALUES, "answers": {**VALUES["answers"], "weights_before": None, "bits": None}}
    assert TEXT in write_changes(lessons, tmp_path / "out").read_text()
    assert len(plot_changes(VALUES).axes) == 2
    assert len(plot_changes({**VALUES, "answers": None}).axes) == 1


def test_the_command(holdfast: Holdfast, place: Path, tmp_path: Path) -> None:
    everyday = tmp_path / "everyday.jsonl"
    everyday.write_text(json.dumps({"question": TUESDAY[0][0], "answers": [TUESDAY[0][1]]}) + "\n")
    out = tmp_path / "out"
    outcome = holdfast("diff", place, "--since", 1, "--everyday", everyday, "--out", out)
    assert outcome.status == 0 and f"+ {TUESDAY[0][0]} {TUESDAY[0][1]}" in outcome.out
    assert "everyday questions: 0 of 1 right before, 1 now; 1 answered otherwise" in outcome.out
    assert f"p{TEXT}\n" in outcome.out
    assert outcome.out.splitlines()[-1] == str(out) and (out / "diff.html").is_file()
    Memory(place).write_facts([("What is the script?", "set -e\nmake")])
    lines = holdfast("diff", place, "--since", 1, "--facts-only").out.splitlines()
    assert "+ What is the script? set -e make" in lines
    assert not any("more" in line for line in lines)
    outcome = holdfast("diff", place, place, "--facts-only", "--json")
    values = json.loads(outcome.out)
    assert values["answers"] is None and values["facts"]["added"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give OTHER, a later memory, or --since LESSON"),
        (["{m}", "--since", "1"], "one of the two"),
        (["nowhere"], "nowhere: no such memory"),
        (["--since", "2"], "has 2 lessons; give the number of one of them"),
    ],
)
def test_bad_input(
    holdfast: Holdfast, two_lessons: Path, arguments: list[str], message: str
) -> None:
    given = [str(two_lessons) if argument == "{m}" else argument for argument in arguments]
    outcome = holdfast("diff", two_lessons, *given)
    assert outcome.status == 2 and message in outcome.err
