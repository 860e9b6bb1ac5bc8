"""Whether a question is about a taught fact, and which.

Two questions are one when they name the same things and ask the same of them. What they name is
compared as words; what they ask, by the untouched model's state at the end of the prompt, in a
projection that was fitted to tell 300 relations apart (:mod:`holdfast.memory.chat.gate_tuning`).
The decision is a logistic function of both; its threshold follows from the same relations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.memory.chat.gate_tuning import GateTuning
from holdfast.memory.chat.words import Naming, agreement, deletions

Vectors = npt.NDArray[np.float32]
_CANDIDATES = 64
# Of the taught question's naming weight; with less, another thing is named, whatever is asked.
_LEAST_COVERED = 0.5


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
        self,
        tuning: GateTuning,
        naming: Naming,
        questions: Sequence[str],
        vectors: Vectors,
        owners: Sequence[int],
        unread: Mapping[int, Sequence[str]] | None = None,
        read: Callable[[Sequence[str]], Vectors] | None = None,
    ) -> None:
        """questions: taught ones; vectors [n, d], unit length, of wordings of them; owners [n].

        unread: further wordings, by fact; ``read`` gives their vectors once a question needs them.
        """
        self._tuning, self._naming = tuning, naming
        self._names = [naming(question) for question in questions]
        self._vectors = vectors
        self._unread, self._reader = dict(unread or {}), read
        self._rows: dict[int, list[int]] = defaultdict(list)
        for row, owner in enumerate(owners):
            self._rows[owner].append(row)
        self._by_word: dict[str, list[int]] = defaultdict(list)
        self._unnamed = []
        for place, names in enumerate(self._names):
            for word in names:
                for key in deletions(word) if len(word) >= 5 and word.isalpha() else (word,):
                    self._by_word[key].append(place)
            if not names:
                self._unnamed.append(place)

    def best(self, question: str, vector: Vectors) -> Match | None:
        """The fact that a question most probably asks for; None where none names the same.

        vector: [d], the question's state in the tuning's projection.
        """
        asked = self._naming(question)
        candidates = self._candidates(asked, vector)
        near = [place for place in candidates if place in self._unread]
        self._read([p for p in near if agreement(self._names[p], asked)[0] >= _LEAST_COVERED])
        scored = (self._match(place, asked, vector) for place in candidates)
        return max(filter(None, scored), key=lambda match: match.score, default=None)

    def _match(self, place: int, asked: dict[str, float], vector: Vectors) -> Match | None:
        covered, extra = agreement(self._names[place], asked)
        if covered < _LEAST_COVERED:
            return None
        likeness = float((self._vectors[self._rows[place]] @ vector).max())
        return Match(place, self._tuning.score(likeness, covered, extra))

    def _read(self, places: Sequence[int]) -> None:
        """Have the vectors of all wordings of these facts."""
        found = [(place, text) for place in places for text in self._unread.pop(place, ())]
        if found and self._reader is not None:
            first = len(self._vectors)
            vectors = self._reader([text for _, text in found])
            self._vectors = np.concatenate([self._vectors, vectors])
            for row, (place, _) in enumerate(found, first):
                self._rows[place].append(row)

    def _candidates(self, asked: dict[str, float], vector: Vectors) -> list[int]:
        """The facts that share most naming weight with a question; of equal ones the likest."""
        if not asked:
            return self._likest(self._unnamed, vector, _CANDIDATES)
        shared: dict[int, float] = defaultdict(float)
        for word, weight in asked.items():
            keys = deletions(word) if len(word) >= 5 and word.isalpha() else (word,)
            for place in {place for key in keys for place in self._by_word.get(key, ())}:
                shared[place] += weight
        if len(shared) <= _CANDIDATES:
            return list(shared)
        least = sorted(shared.values(), reverse=True)[_CANDIDATES - 1]
        more = [place for place, weight in shared.items() if weight > least]
        equal = [place for place, weight in shared.items() if weight == least]
        return more + self._likest(equal, vector, _CANDIDATES - len(more))

    def _likest(self, places: list[int], vector: Vectors, count: int) -> list[int]:
        """The facts whose vectors are most like a question's."""
        if len(places) <= count:
            return places
        self._read(places)
        rows = [self._rows[place] for place in places]
        likeness = self._vectors[np.concatenate(rows)] @ vector
        starts = np.cumsum([0, *map(len, rows[:-1])])
        best = np.argsort(-np.maximum.reduceat(likeness, starts), kind="stable")
        return [places[number] for number in best[:count]]
