"""What a memory makes of pairs proposed from documents: what is new, and a table to read first."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.builders.proposals import Proposal
from holdfast.core.files import write_text_atomically
from holdfast.memory.spelling import loose_key
from holdfast.streams import Item, Stream, Task

_COLUMNS = ("question", "answer", "source", "sentence")


@dataclass(frozen=True)
class Proposed:
    """Pairs that were found in documents. passages: how many were read.

    new: that the memory does not have; known: that it has; contradicting: to which it has another
    answer, with that; refused: how many pairs did not count, by why.
    """

    passages: int
    new: tuple[Proposal, ...]
    known: tuple[Proposal, ...]
    contradicting: tuple[tuple[Proposal, str], ...]
    refused: dict[str, int]

    def stream(self, name: str) -> Stream:
        """The new pairs as one batch; each keeps its source and sentence."""
        items = tuple(_item(one) for one in self.new)
        return Stream((Task(name, items),), name)

    def counts(self) -> dict[str, int]:
        """How many of each kind."""
        return {
            "passages": self.passages,
            "new": len(self.new),
            "known": len(self.known),
            "contradicting": len(self.contradicting),
            "refused": sum(self.refused.values()),
        }

    def lines(self) -> list[str]:
        """For a reader."""
        lines = [f"{_counted(self.passages, 'passage')}: {_counted(len(self.new), 'new fact')}"]
        if self.known:
            lines[0] += f", {len(self.known)} on file already"
        lines += [
            f"on file is another answer ({answer}): {one.question} {one.answer}"
            for one, answer in self.contradicting
        ]
        lines += [f"left out, {reason}: {number}" for reason, number in self.refused.items()]
        return lines


def sorted_out(proposals: Iterable[Proposal], facts: Iterable[Item], passages: int) -> Proposed:
    """Pairs beside what a memory has on file. passages: how many they come from."""
    answers = {loose_key(fact.question): fact.answer for fact in facts}
    new: list[Proposal] = []
    known: list[Proposal] = []
    contradicting: list[tuple[Proposal, str]] = []
    refused: Counter[str] = Counter()
    for one in proposals:
        before = answers.get(loose_key(one.question))
        if one.check is None:
            refused[one.reason] += 1
        elif before is None:
            new.append(one)
        elif loose_key(before) == loose_key(one.answer):
            known.append(one)
        else:
            contradicting.append((one, before))
    return Proposed(passages, tuple(new), tuple(known), tuple(contradicting), dict(refused))


def write_review(proposed: Proposed, path: Path) -> None:
    """Write a CSV table of what is new and what contradicts; to be read, changed and learned.

    A pair that contradicts what is on file has that in a column of its own.
    Raises HoldfastError where it cannot be written.
    """
    rows: list[Sequence[str]] = [
        (one.question, one.answer, one.source, one.sentence, "") for one in proposed.new
    ]
    rows += [
        (one.question, one.answer, one.source, one.sentence, answer)
        for one, answer in proposed.contradicting
    ]
    width = len(_COLUMNS) + bool(proposed.contradicting)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, "on file"][:width])
    writer.writerows(row[:width] for row in rows)
    write_text_atomically(path, text.getvalue(), parents=True)


def _item(one: Proposal) -> Item:
    return Item(one.question, one.answer, details={"source": one.source, "sentence": one.sentence})


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
