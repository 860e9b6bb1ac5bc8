"""The candidates of all sources, each question once, in the order in which they are tested."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from experiments.paper.real_qa.candidate import CandidateItem, SourceRecords
from holdfast.core.seeding import derive

REPEATED = "question of an earlier source or record, same answer"
CONTRADICTING = "question of an earlier source or record, another answer"
TOO_LONG = "longer than the sequence may be"


@dataclass(frozen=True)
class Pool:
    """A source's usable candidates in test order, and how many were dropped, by reason."""

    candidates: list[CandidateItem]
    dropped: Counter[str]


def pools(
    readings: Mapping[str, SourceRecords],
    seed: int,
    fits: Callable[[CandidateItem], bool] | None = None,
) -> dict[str, Pool]:
    """Drop repeated and overlong candidates, and shuffle each source under the seed.

    A model is queried with the question alone. So of questions that differ only in case, spacing
    or closing punctuation, the first is kept: sources come in alphabetical order, records as they
    were read. Repeats with the same answer and with another are counted separately.

    Source: app:data-uniqueness, app:data-real.
    """
    first: dict[str, CandidateItem] = {}
    made = {}
    for source in sorted(readings):
        dropped: Counter[str] = Counter()
        kept = []
        for candidate in readings[source].candidates:
            if fits is not None and not fits(candidate):
                dropped[TOO_LONG] += 1
                continue
            earlier = first.setdefault(_key(candidate.question), candidate)
            if earlier is candidate:
                kept.append(candidate)
            else:
                dropped[REPEATED if _agree(earlier, candidate) else CONTRADICTING] += 1
        Random(derive(seed, "real-qa order", source)).shuffle(kept)
        made[source] = Pool(kept, dropped)
    return made


def _key(question: str) -> str:
    words = unicodedata.normalize("NFC", question).casefold().split()
    return " ".join(words).rstrip("?.:!- ")


def _agree(candidate: CandidateItem, other: CandidateItem) -> bool:
    """Whether the two candidates share an accepted answer, in any case."""
    return not {answer.casefold() for answer in candidate.answers}.isdisjoint(
        answer.casefold() for answer in other.answers
    )
