"""The candidates of all sources, each question once, in the order in which they are tried."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from holdfast.builders.real_qa.candidate import Candidate, Reading
from holdfast.core.seeding import derive

REPEATED = "question of an earlier source or record, same answer"
CONTRADICTING = "question of an earlier source or record, another answer"
TOO_LONG = "longer than the sequence may be"


@dataclass(frozen=True)
class Pool:
    """A source's usable candidates in the order of trial, and how many were dropped, by reason."""

    candidates: list[Candidate]
    dropped: Counter[str]


def pools(
    readings: Mapping[str, Reading],
    seed: int,
    fits: Callable[[Candidate], bool] | None = None,
) -> dict[str, Pool]:
    """Drop what stands twice and what is too long, and shuffle each source under the seed.

    A model is asked by the question alone. So of questions that differ in case, spacing or
    closing punctuation only, the first stays: sources come in alphabetical order, records as they
    were read. Whether it has another answer then is counted apart.

    Source: app:data-uniqueness, app:data-real.
    """
    first: dict[str, Candidate] = {}
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


def _agree(one: Candidate, other: Candidate) -> bool:
    """Whether an answer that one accepts is accepted by the other."""
    return not {answer.casefold() for answer in one.answers}.isdisjoint(
        answer.casefold() for answer in other.answers
    )
