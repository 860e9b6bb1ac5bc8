"""Sort pairs proposed from documents into new and known ones, and write them into a table."""

from __future__ import annotations

import contextlib
import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.builders.proposals import Proposal
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json, write_text_atomically
from holdfast.memory.words import loose_key
from holdfast.model.sources.cache import cache_directory
from holdfast.streams import Item, Stream, Task
from holdfast.streams.item import counted, quoted

TakenFor = Callable[[Sequence[str]], Sequence[Item | None]]

PROPOSALS = "documents"  # folder of the cache with the pairs of each passage
_COLUMNS = ("question", "answer", "source", "sentence")


@dataclass(frozen=True)
class Proposed:
    """Pairs of a question and an answer from documents, compared with a memory's facts.

    passages: how many were read; contradicting: pairs with the memory's other answer; refused:
    number of pairs that failed the check, by reason; repeating: new pairs that the memory may have
    in other words, with those.
    """

    passages: int
    new: tuple[Proposal, ...]
    known: tuple[Proposal, ...]
    contradicting: tuple[tuple[Proposal, str], ...]
    refused: dict[str, int]
    repeating: dict[Proposal, str] = field(default_factory=dict)

    def stream(self, name: str) -> Stream:
        """The new pairs as one batch of items with their source and sentence as details."""
        items = []
        for pair in self.new:
            details = {"source": pair.source, "sentence": pair.sentence}
            items.append(Item(pair.question, pair.answer, details=details))
        return Stream((Task(name, tuple(items)),), name)

    def counts(self) -> dict[str, int]:
        return {
            "passages": self.passages,
            "new": len(self.new),
            "known": len(self.known),
            "contradicting": len(self.contradicting),
            "refused": sum(self.refused.values()),
        }

    def lines(self) -> list[str]:
        lines = [f"{counted(self.passages, 'passage')}: {counted(len(self.new), 'new fact')}"]
        lines += [f"on file already: {pair.question}" for pair in self.known]
        lines += [
            f"may be on file already ({before}): {pair.question}"
            for pair, before in self.repeating.items()
        ]
        lines += [
            f"on file is another answer ({answer}): {pair.question} {pair.answer}"
            for pair, answer in self.contradicting
        ]
        lines += [f"left out, {reason}: {count}" for reason, count in self.refused.items()]
        return lines


def sorted_out(
    proposals: Iterable[Proposal],
    facts: Iterable[Item],
    passages: int,
    taken_for: TakenFor = lambda questions: [None] * len(questions),
) -> Proposed:
    """Compare pairs from ``passages`` passages with the facts of a memory.

    taken_for: returns the fact that the memory takes each new question for, or None.
    """
    answers = {loose_key(fact.question): fact.answer for fact in facts}
    new: list[Proposal] = []
    known: list[Proposal] = []
    contradicting: list[tuple[Proposal, str]] = []
    refused: Counter[str] = Counter()
    for pair in proposals:
        before = answers.get(loose_key(pair.question))
        if pair.check is None:
            refused[pair.reason] += 1
        elif before is None:
            new.append(pair)
        elif loose_key(before) == loose_key(pair.answer):
            known.append(pair)
        else:
            contradicting.append((pair, before))
    repeating: dict[Proposal, str] = {}
    others = taken_for([pair.question for pair in new]) if answers and new else [None] * len(new)
    for pair, fact in list(zip(new, others, strict=True)):
        if fact is None:
            continue
        before = f"{fact.answer}, if it asks the same as {quoted(fact.question, 200)}"
        if loose_key(fact.answer) == loose_key(pair.answer):
            repeating[pair] = before
        else:
            new.remove(pair)
            contradicting.append((pair, before))
    return Proposed(
        passages, tuple(new), tuple(known), tuple(contradicting), dict(refused), repeating
    )


def write_review(proposed: Proposed, path: Path) -> None:
    """Write a CSV table of the new and the contradicting pairs, to be read, changed and learned.

    A further column has the answer on file where one contradicts or may repeat it.
    """
    new = ((pair, proposed.repeating.get(pair, "")) for pair in proposed.new)
    pairs = [*new, *proposed.contradicting]
    rows = [
        (pair.question, pair.answer, pair.source, pair.sentence, answer) for pair, answer in pairs
    ]
    width = len(_COLUMNS) + any(answer for _, answer in pairs)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, "on file"][:width])
    writer.writerows(row[:width] for row in rows)
    write_text_atomically(path, text.getvalue(), parents=True)


def forget_proposals(facts: Iterable[Item]) -> None:
    """Remove the cached pairs of every passage that any of these facts comes from.

    The passage's other pairs are proposed again when the document is read again.
    """
    questions = {loose_key(fact.question) for fact in facts}
    sentences = {fact.details.get("sentence") for fact in facts} - {None, ""}
    for path in (cache_directory() / PROPOSALS).glob("*.json"):
        with contextlib.suppress(HoldfastError, OSError, TypeError, KeyError):
            pairs = read_json(path)
            if any(
                loose_key(pair["question"]) in questions or pair["sentence"] in sentences
                for pair in pairs
            ):
                path.unlink()
