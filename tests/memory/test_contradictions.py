"""New facts whose question is answered already: both are kept, and whoever teaches is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.answering import Answer, Answerer
from holdfast.memory.memory import Memory
from holdfast.memory.plan import Correction, LessonOutcome, contradictions, plan
from holdfast.memory.telling import outcome_lines
from holdfast.streams import Item, Stream, Task
from holdfast.streams.batches import WORDING_OF

KEY = Item("Where is the brass key?", "in the mill")
OTHER = Item("Who has the brass key?", "Lum")
WORDING = Item("The brass key is where?", "at sea", details={WORDING_OF: KEY.question})
LINE = (
    '"{}" may ask the same as "Where is the brass key?", which stays on file with the answer '
    '"in the mill"; if so, forget that one'
)


def notices(*given: Item, on_file: tuple[Item, ...] = (KEY,)) -> tuple[tuple[str, ...], list[str]]:
    """The notices on given facts, and which questions were asked; all but OTHER ask for KEY."""
    asked: list[str] = []

    def taken_for(questions: Sequence[str]) -> list[Item | None]:
        asked.extend(questions)
        return [None if text == OTHER.question else KEY for text in questions]

    batches = (Task("1", on_file),) if on_file else ()
    decided = plan(batches, len(batches), Stream((Task("2", given),), "new"))
    return contradictions(taken_for, decided), asked


def test_a_new_answer_in_other_words_is_told():
    new = Item("In which place is the brass key?", "under the stove")
    told = (LINE.format(new.question),)
    assert notices(new, OTHER) == (told, [new.question, OTHER.question])


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ([Item("In which place is the brass key?", "in the mill")], True),  # the same answer
        ([Item("In which place is the brass key?", "In the Mill")], True),
        ([Item("Where is the brass key", "at sea")], True),  # differs in marks alone: the plan says
        ([Item(KEY.question, "at sea"), WORDING], False),  # a correction, with another wording
        ([KEY], False),
    ],
)
def test_what_contradicts_nothing_or_is_told_otherwise(given, asked):
    assert notices(*given) == ((), [item.question for item in given if asked])


def test_nobody_is_asked_where_nothing_is_on_file_and_at_most_a_hundred_are():
    assert notices(OTHER, on_file=()) == ((), [])
    many = [Item(f"Who has key {number}?", "Lum") for number in range(101)]
    assert len(notices(*many)[1]) == 100


def test_a_damaged_lesson_does_not_stop_whoever_teaches(place: Path) -> None:
    lesson = place / "lessons" / Memory(place).record.lessons[0].file
    lesson.write_bytes(lesson.read_bytes()[:1000])
    memory = Memory(place)
    outcome = memory.learn([(OTHER.question, OTHER.answer)])
    assert (len(outcome.facts), outcome.notices) == (1, ())
    with pytest.raises(HoldfastError, match="is missing or damaged"):
        memory.ask(OTHER.question)


def test_teaching_tells_of_it_where_a_model_is_loaded(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a fact that waits; without a model, facts are put on file at once and unread."""
    real = Answerer.taught

    def taught(self: Answerer, questions: Sequence[str]) -> list[Any]:
        return [
            Answer(text, KEY.answer, "weights", KEY) if text.startswith("In which") else answer
            for text, answer in zip(questions, real(self, questions), strict=True)
        ]

    monkeypatch.setattr(Answerer, "taught", taught)
    first, second = "In which place is the brass key?", "In which house is the brass key?"
    assert memory.write_facts([(first, "at sea")]).notices == ()
    outcome = memory.learn([(second, "at Lum's")])
    assert outcome.notices == (LINE.format(second),)
    assert memory.write_facts([("In which box is it?", "3")]).notices == (
        LINE.format("In which box is it?"),
    )
    assert {fact.answer for fact in memory.facts} >= {"in the mill", "at sea", "at Lum's", "3"}


def test_of_many_corrections_few_are_shown() -> None:
    facts = [Item(f"Who is {number}?", "Una") for number in range(5)]
    corrected = tuple(Correction(fact, fact) for fact in facts)
    lines = outcome_lines(LessonOutcome((), (), (), (), corrected, 5))
    shown = [f'corrected: "{fact.question}" is "Una", was "Una"' for fact in facts[:3]]
    assert [line for line in lines if line.startswith("corrected")] == [
        *shown, "corrected: 2 more",
    ]  # fmt: skip
