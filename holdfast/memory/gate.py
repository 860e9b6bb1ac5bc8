"""Whether a question is about a taught fact, and which.

Two questions are one when they name the same things and ask the same of them. What they name is
compared as words; what they ask, by the untouched model's states at the other words, as how
probably each of 600 relations is asked for (:mod:`holdfast.memory.gate_tuning`).
The decision is a logistic function of both; its threshold follows from the same relations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from holdfast.memory.gate_tuning import GateTuning, QuestionLook, Vectors
from holdfast.memory.words import NAMED, Names, agreement, index_keys, names_other_number

_CANDIDATES = 64
# Of the taught question's naming weight, less what the asked one names beside it; below, another
# thing is named, whatever is asked ("the silver key" for "the brass key").
_LEAST_AGREED = 0.5


@dataclass(frozen=True)
class Match:
    """A taught question that fits a question. place: its number; score: above 0 it is accepted."""

    place: int
    score: float


class Gate:
    """Finds the taught question that a question asks.

    An index by naming words leads to the few facts that are compared, so the time of a question
    does not grow with the number of facts.
    """

    def __init__(
        self, tuning: GateTuning, looks: Iterable[QuestionLook], owners: Iterable[int]
    ) -> None:
        """looks: of taught questions; owners: the number of the fact that each asks for."""
        self._tuning = tuning
        self._looks: list[QuestionLook] = []
        self._owners: list[int] = []
        self._by_word: dict[str, list[int]] = defaultdict(list)
        self._unnamed: list[int] = []
        for look, owner in zip(looks, owners, strict=True):
            self.add(look, owner)

    def add(self, look: QuestionLook, owner: int) -> None:
        """Take up a further question of a fact."""
        row = len(self._looks)
        self._looks.append(look)
        self._owners.append(owner)
        for word, weight in look.names.items():
            for key in index_keys(word) if weight else ():
                self._by_word[key].append(row)
        if _names_nothing(look.names):
            self._unnamed.append(row)

    def best(self, asked: QuestionLook) -> Match | None:
        """The fact that a question most probably asks for; None where none names the same."""
        scored = (self._match(row, asked) for row in self._candidates(asked))
        return max(filter(None, scored), key=lambda match: match.score, default=None)

    def _match(self, row: int, asked: QuestionLook) -> Match | None:
        taught = self._looks[row].names
        covered, extra = agreement(taught, asked.names)
        if covered - extra < _LEAST_AGREED or names_other_number(taught, asked.names):
            return None
        likeness = float(self._looks[row].vector @ asked.vector)
        return Match(self._owners[row], self._tuning.score(likeness, covered, extra))

    def _candidates(self, asked: QuestionLook) -> list[int]:
        """The rows that share most naming weight with a question; of equal ones the likest."""
        shared: dict[int, float] = defaultdict(float)
        for word, weight in asked.names.items():
            for row in {row for key in index_keys(word) for row in self._by_word.get(key, ())}:
                shared[row] += weight
        rows = self._most(shared, asked.vector)
        if _names_nothing(asked.names):
            unnamed = self._likest(self._unnamed, asked.vector, _CANDIDATES)
            rows = list(dict.fromkeys([*rows, *unnamed]))
        return rows

    def _most(self, shared: dict[int, float], vector: Vectors) -> list[int]:
        """The rows that share most, at most so many as are compared."""
        if len(shared) <= _CANDIDATES:
            return list(shared)
        least = sorted(shared.values(), reverse=True)[_CANDIDATES - 1]
        more = [row for row, weight in shared.items() if weight > least]
        equal = [row for row, weight in shared.items() if weight == least]
        return more + self._likest(equal, vector, _CANDIDATES - len(more))

    def _likest(self, rows: list[int], vector: Vectors, count: int) -> list[int]:
        """The rows whose vectors are most like a question's."""
        if len(rows) <= count:
            return rows
        vectors = np.stack([self._looks[row].vector for row in rows])
        best = np.argsort(-(vectors @ vector), kind="stable")
        return [rows[number] for number in best[:count]]


def _names_nothing(names: Names) -> bool:
    return sum(names.values()) < NAMED
