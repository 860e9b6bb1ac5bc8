"""Compare two versions of a memory, or two memories.

Compared are the lists of facts, the answers to questions of common knowledge and, if one set of
weights has all facts, what these weights alone answer to such questions and do to plain text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.reporting import CountReport, WorkReport, silent
from holdfast.memory.answering import Answerer
from holdfast.memory.evaluation.asking import Sides
from holdfast.memory.evaluation.drift import bits_per_byte
from holdfast.memory.evaluation.measure import sides_of
from holdfast.memory.evaluation.probes import EverydayQuestion
from holdfast.memory.evaluation.stages import part, texts
from holdfast.memory.memory import Memory
from holdfast.memory.record import LearnedLesson
from holdfast.streams import Item
from holdfast.streams.batches import fact_key, newest
from holdfast.streams.item import same_answer, says


@dataclass(frozen=True)
class MemoryVersion:
    """A memory as it is, or was.

    sides: loads the model and returns what can be asked; one_set: whether one set of weights
    (neurons, or an adapter that reads whole turns) has all facts.
    """

    name: str
    facts: tuple[Item, ...]
    sides: Callable[[], Sides]
    one_set: bool


@dataclass(frozen=True)
class FactChanges:
    """How two lists of facts differ.

    added, forgotten: facts of the later or the earlier list alone; corrected: pairs of a fact
    before and after; unchanged: how many have the same answer in both.
    """

    added: tuple[Item, ...]
    corrected: tuple[tuple[Item, Item], ...]
    forgotten: tuple[Item, ...]
    unchanged: int


@dataclass(frozen=True)
class OtherAnswer:
    """A question with another answer than before. was_right, is_right: of the two answers."""

    question: str
    before: str
    after: str
    was_right: bool
    is_right: bool


@dataclass(frozen=True)
class WeightsAlone:
    """Weights without gate and list. right: everyday questions; bits: per byte of plain text."""

    right: int
    bits: float


@dataclass(frozen=True)
class AnswerChanges:
    """How the answers to questions of common knowledge differ.

    before, after: how many of those asked are answered right; others: those with another answer;
    weights_before, weights_after: of the weights alone, None if no one set has all facts; bits: per
    byte of text, of the untouched model, None if neither version has such a set.
    """

    asked: int
    before: int
    after: int
    others: tuple[OtherAnswer, ...]
    weights_before: WeightsAlone | None = None
    weights_after: WeightsAlone | None = None
    bits: float | None = None


@dataclass(frozen=True)
class Changes:
    """How two versions differ. before, after: their names; answers: None if nothing is asked."""

    before: str
    after: str
    facts: FactChanges
    answers: AnswerChanges | None

    def values(self) -> dict[str, Any]:
        """As JSON values; a fact becomes its question and answer."""
        facts = {
            "added": [_pair(fact) for fact in self.facts.added],
            "corrected": [
                {**_pair(now), "before": was.answer} for was, now in self.facts.corrected
            ],
            "forgotten": [_pair(fact) for fact in self.facts.forgotten],
            "unchanged": self.facts.unchanged,
        }
        answers = None if self.answers is None else asdict(self.answers)
        return {"before": self.before, "after": self.after, "facts": facts, "answers": answers}


def now(memory: Memory) -> MemoryVersion:
    """A memory as it is. Raises HoldfastError if it has learned nothing."""
    if not memory.horizon:
        raise HoldfastError(f"{memory.directory}: has learned nothing yet; learn its facts")
    record = memory.record
    one_set = record.all_neurons is not None or _one_adapter(record.lessons)
    return MemoryVersion(str(memory.directory), memory.facts, partial(sides_of, memory), one_set)


def after_lesson(memory: Memory, number: int) -> MemoryVersion:
    """A memory as it was after its first ``number`` lessons, without what was forgotten since.

    Raises HoldfastError if there is no such lesson, or no later one.
    """
    if not 0 < number < memory.horizon:
        raise HoldfastError(
            f"--since {number}: {memory.directory} has {memory.horizon} lessons; give the number "
            "of one of them that is not the last"
        )
    record, tasks = memory.record, memory.tasks[:number]
    earlier_files = {lesson.file for lesson in record.lessons[:number]}
    later_files = {lesson.file for lesson in record.lessons[number:]}

    def sides() -> Sides:
        if earlier_files & later_files:
            raise HoldfastError(
                f"--since {number}: lessons before and after it share one adapter since they were "
                "consolidated, so earlier answers are gone; add --facts-only, or compare with a "
                "copy from then"
            )
        earlier = replace(record, lessons=record.lessons[:number], neurons=None)
        return Sides(memory.engine(), Answerer(memory.engine(), memory.directory, earlier, tasks))

    name = f"{memory.directory} after lesson {number}"
    one_set = _one_adapter(record.lessons[:number])
    return MemoryVersion(name, tuple(newest(tasks)), sides, one_set)


def _one_adapter(lessons: Sequence[LearnedLesson]) -> bool:
    return len({lesson.file for lesson in lessons}) == 1 and lessons[0].whole_turn


def changes(
    before: MemoryVersion,
    after: MemoryVersion,
    everyday: Sequence[EverydayQuestion] = (),
    report: WorkReport = silent,
) -> Changes:
    """Compare two versions. everyday: questions of common knowledge; if empty, nothing is asked.

    report(what, done, total): questions.
    """
    facts = fact_changes(before.facts, after.facts)
    answers = answer_changes(before, after, everyday, report) if everyday else None
    return Changes(before.name, after.name, facts, answers)


def fact_changes(before: Sequence[Item], after: Sequence[Item]) -> FactChanges:
    """Compare two lists of facts; the results keep their order."""
    earlier = {fact_key(item): item for item in before}
    later = {fact_key(item): item for item in after}
    both = [(earlier[key], item) for key, item in later.items() if key in earlier]
    corrected = tuple((was, is_now) for was, is_now in both if not same_answer(was, is_now))
    return FactChanges(
        added=tuple(item for key, item in later.items() if key not in earlier),
        corrected=corrected,
        forgotten=tuple(item for key, item in earlier.items() if key not in later),
        unchanged=len(both) - len(corrected),
    )


def answer_changes(
    before: MemoryVersion,
    after: MemoryVersion,
    everyday: Sequence[EverydayQuestion],
    report: WorkReport,
) -> AnswerChanges:
    """Ask both versions the same questions; untaught ones get replies of at most 32 tokens."""
    questions = [asked.question for asked in everyday]
    replies_of: list[list[str]] = []
    alone: list[WeightsAlone | None] = []
    bits = None
    for name, version in (("before", before), ("after", after)):
        progress: CountReport = partial(report, f"asking, {name}")
        sides = version.sides()
        parts = 2 if version.one_set else 1
        replies_of.append(texts(sides.memory(questions, part(progress, 0, parts))))
        weights = None
        if version.one_set:
            replies = sides.weights(questions, [0] * len(questions), part(progress, 1, parts))
            bits, weights_bits = bits_per_byte(sides, silent)
            weights = WeightsAlone(sum(_right(replies, everyday)), weights_bits)
        alone.append(weights)
    was, is_now = (_right(replies, everyday) for replies in replies_of)
    rows = zip(questions, *replies_of, was, is_now, strict=True)
    others = tuple(OtherAnswer(*row) for row in rows if row[1] != row[2])
    return AnswerChanges(len(questions), sum(was), sum(is_now), others, alone[0], alone[1], bits)


def _right(replies: Sequence[str], everyday: Sequence[EverydayQuestion]) -> list[bool]:
    return [says(text, asked.answers) for text, asked in zip(replies, everyday, strict=True)]


def _pair(item: Item) -> dict[str, str]:
    return {"question": item.question, "answer": item.answer}
