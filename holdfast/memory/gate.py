"""Decide whether a question is about a taught fact, and which.

Two questions are the same if they name the same things and ask the same of them. A logistic probe
of the untouched model's hidden states finds the words of a name, also without capitals (``the
thunder tortoise``); names are compared as words. What is asked is a distribution over 600
relations, from the hidden states at the other words. A logistic function of both comparisons
decides. :mod:`holdfast.memory.gate_tuning` fits all of it to a model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from holdfast.memory.words import (
    NAMED,
    Names,
    Word,
    agreement,
    index_keys,
    names_apart,
    names_other_number,
    plain_words,
    words,
)

Vectors = npt.NDArray[np.float32]
Span = tuple[int, int]  # begin and end in a text, the end excluded

_TEMPERATURE = 0.05  # of the softmax over relations; chosen on the development set
_LEAST_ASKING = 1e-3  # weight in the mean state of a token that is surely of a name
_LEAST_NAMING = 0.1  # probability; words with a lower one name nothing
# Inputs of the probe beside a token's state: whether its word has a capital or digit and is not the
# first, and whether it is in plain_words(). 0 and 1 are of the size of a standardised state.
_HINTS = 2
_CANDIDATES = 64  # taught questions that are compared with one question
_AS_LIKELY = 1.0  # nats; a question may ask for either of two facts whose scores differ by less
_WAITING = 32  # waiting questions that are read per asked one; reading one takes some milliseconds
# Least difference of the two fractions of agreement(); below it another thing is named, whatever is
# asked ("the silver key" for "the brass key").
_LEAST_AGREED = 0.5


@dataclass(frozen=True)
class QuestionLook:
    """What the gate compares of a question.

    names: its words with their naming weights; vector: [relations], square roots of the probability
    that it asks for each, so that a dot product is a Bhattacharyya coefficient.
    """

    names: Names
    vector: Vectors


@dataclass(frozen=True)
class GateTuning:
    """The parameters of a gate, fitted to one model.

    key: identifies the model, its template and the library; depths: of the hidden states that are
    used; probe: of those at the last; mean: [depths * d]; projection: [depths * d, m]; centres: of
    the relations, [relations, m]; weights: of the features of :meth:`score` and 1.
    """

    key: str
    depths: tuple[int, ...]
    probe: NameProbe
    mean: torch.Tensor
    projection: torch.Tensor
    centres: torch.Tensor
    weights: tuple[float, ...]

    def look(self, text: str, spans: Sequence[Span], states: torch.Tensor) -> QuestionLook:
        """What the gate compares. spans: of the text's tokens; states: [depths, tokens, d]."""
        probabilities = self.probe.probabilities(text, spans, states[-1])
        names = self.probe.names(text, spans, probabilities)
        return QuestionLook(
            names, self.vectors(asking_states(states, probabilities)[None])[0].numpy()
        )

    def vectors(self, states: torch.Tensor) -> torch.Tensor:
        """Unit vectors [n, relations] from mean states [n, depths, d]."""
        directions = directions_of(states.flatten(1) - self.mean, self.projection)
        return torch.softmax(directions @ self.centres.T / _TEMPERATURE, dim=1).sqrt()

    def score(self, likeness: float, covered: float, extra: float) -> float:
        """Positive if two questions are the same, by their vectors' product and agreement()."""
        features = (likeness, covered, extra, 1.0)
        return sum(weight * value for weight, value in zip(self.weights, features, strict=True))


def asking_states(states: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
    """The mean state of the tokens that belong to no name: [depths, d].

    states: [depths, tokens, d]; probabilities: [tokens], of belonging to a name.
    """
    weights = (1 - probabilities).clamp(min=_LEAST_ASKING)
    return torch.einsum("ktd,t->kd", states.float(), weights / weights.sum())


def directions_of(centred: torch.Tensor, projection: torch.Tensor) -> torch.Tensor:
    """Unit vectors [n, m] of centred states [n, depths * d]."""
    return F.normalize(centred @ projection, dim=1)


@dataclass(frozen=True)
class NameProbe:
    """A logistic function of a token's state and hints: does it belong to a name?

    mean, scale: [d]; weights: [d + hints + 1].
    """

    mean: torch.Tensor
    scale: torch.Tensor
    weights: torch.Tensor

    def probabilities(self, text: str, spans: Sequence[Span], states: torch.Tensor) -> torch.Tensor:
        """The probability that each token belongs to a name: [tokens].

        states: [tokens, d], of the depth that the probe was fitted at.
        """
        inputs = torch.cat([(states.float() - self.mean) / self.scale, hints_of(text, spans)], 1)
        return torch.sigmoid(inputs @ self.weights[:-1] + self.weights[-1])

    def names(
        self, text: str, spans: Sequence[Span], probabilities: torch.Tensor
    ) -> dict[str, float]:
        """The naming weight of every word: its number of tokens times its probability.

        A word's probability is the greatest of its tokens', since the first may not tell. If no
        word names anything, every word that is not in :func:`.plain_words` gets 1.
        """
        weights: dict[str, float] = {}
        for word, rows in tokens_of_words(text, spans):
            probability = max(probabilities[rows].tolist(), default=0.0)
            weight = len(rows) * probability if probability >= _LEAST_NAMING else 0.0
            weights[word.key] = max(weights.get(word.key, 0.0), weight)
        if sum(weights.values()) >= NAMED:
            return weights
        return {word: float(word not in plain_words()) for word in weights}


def tokens_of_words(text: str, spans: Sequence[Span]) -> list[tuple[Word, list[int]]]:
    """Each word with the numbers of its tokens, without those of blanks and punctuation alone."""
    inner = [(row, *span) for row, span in enumerate(spans) if words(text[slice(*span)])]
    return [
        (word, [row for row, begin, end in inner if begin < word.end and end > word.begin])
        for word in words(text)
    ]


def hints_of(text: str, spans: Sequence[Span]) -> torch.Tensor:
    """The probe's inputs beside the states: [tokens, hints]."""
    hints = [[0.0] * _HINTS for _ in spans]
    plain = plain_words()
    for number, (word, rows) in enumerate(tokens_of_words(text, spans)):
        hint = [float(number > 0 and word.is_marked), float(word.key in plain)]
        for row in rows:
            hints[row] = hint
    return torch.tensor(hints, dtype=torch.float32).view(len(spans), _HINTS)


@dataclass(frozen=True)
class Match:
    """A fact that a question may ask for. place: the fact's number; score: accepted if positive."""

    place: int
    score: float


class Gate:
    """Finds the fact that a question asks for.

    An index of naming words finds the few taught questions to compare, so the time per question
    does not grow with the number of facts.
    """

    def __init__(
        self, tuning: GateTuning, looks: Iterable[QuestionLook], owners: Iterable[int]
    ) -> None:
        """looks: of the taught questions; owners: the number of the fact that each asks for."""
        self._tuning = tuning
        self._looks: list[QuestionLook] = []
        self._owners: list[int] = []
        self._by_word: dict[str, list[int]] = defaultdict(list)
        self._words: set[str] = set()  # that name something, in lower case
        self._unnamed: list[int] = []
        for look, owner in zip(looks, owners, strict=True):
            self.add(look, owner)

    def add(self, look: QuestionLook, owner: int) -> None:
        row = len(self._looks)
        self._looks.append(look)
        self._owners.append(owner)
        for word in (word for word, weight in look.names.items() if weight):
            self._words.add(word)
            for key in index_keys(word):
                self._by_word[key].append(row)
        if _names_nothing(look.names):
            self._unnamed.append(row)

    def best(self, asked: QuestionLook) -> Match | None:
        """The fact that a question most probably asks for.

        None if no taught question names the same, or if the question has no word that tells two
        facts apart (*Where was Tindle born?* of Orsa Tindle and Ada Tindle).
        """
        scored = ((row, self._match(row, asked)) for row in self._candidates(asked))
        matches = {row: match for row, match in scored if match is not None}
        best = max(matches, key=lambda row: matches[row].score, default=None)
        if best is None or self._is_ambiguous(best, matches, asked.names):
            return None
        return matches[best]

    def _is_ambiguous(self, best: int, matches: Mapping[int, Match], asked: Names) -> bool:
        """Whether a fact of about the same score differs only in names that the question lacks."""
        named, others = names_apart(self._looks[best].names, asked, self._words)
        if not others:
            return False
        place, score = matches[best].place, matches[best].score
        apart = (
            names_apart(self._looks[row].names, asked, self._words)
            for row, match in matches.items()
            if match.place != place and match.score > score - _AS_LIKELY
        )
        return any(theirs == named and lacking and lacking != others for theirs, lacking in apart)

    def _match(self, row: int, asked: QuestionLook) -> Match | None:
        taught = self._looks[row].names
        covered, extra = agreement(taught, asked.names, self._words)
        if covered - extra < _LEAST_AGREED or names_other_number(taught, asked.names):
            return None
        likeness = float(self._looks[row].vector @ asked.vector)
        return Match(self._owners[row], self._tuning.score(likeness, covered, extra))

    def _candidates(self, asked: QuestionLook) -> list[int]:
        """The rows that share most naming weight; also unnamed ones if it names nothing."""
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
        """The ``_CANDIDATES`` rows that share most; of equal ones those with the likest vectors."""
        if len(shared) <= _CANDIDATES:
            return list(shared)
        least = sorted(shared.values(), reverse=True)[_CANDIDATES - 1]
        more = [row for row, weight in shared.items() if weight > least]
        equal = [row for row, weight in shared.items() if weight == least]
        return more + self._likest(equal, vector, _CANDIDATES - len(more))

    def _likest(self, rows: list[int], vector: Vectors, count: int) -> list[int]:
        if len(rows) <= count:
            return rows
        vectors = np.stack([self._looks[row].vector for row in rows])
        best = np.argsort(-(vectors @ vector), kind="stable")
        return [rows[number] for number in best[:count]]


def _names_nothing(names: Names) -> bool:
    return sum(names.values()) < NAMED


class WaitingQuestions:
    """Questions of facts that wait to be learned, which the model has not read yet.

    They are found by shared words, read, and added to the gate when a question may ask for them.
    """

    def __init__(self, questions: Iterable[tuple[int, str]]) -> None:
        """questions: pairs of a fact's number and a question."""
        self._unread = dict(enumerate(questions))
        self._by_key: dict[str, list[int]] = defaultdict(list)
        for number, (_, text) in self._unread.items():
            for key in _keys(text):
                self._by_key[key].append(number)

    def about(self, asked: Sequence[str]) -> list[tuple[int, str]]:
        """Take the waiting questions that share most words with those asked; each is taken once."""
        numbers: dict[int, None] = {}
        for question in asked:
            shared = Counter(
                number
                for key in _keys(question)
                for number in self._by_key.get(key, ())
                if number in self._unread
            )
            numbers |= dict.fromkeys(number for number, _ in shared.most_common(_WAITING))
        return [self._unread.pop(number) for number in numbers]


def _keys(text: str) -> set[str]:
    """The index keys of a text's words without :func:`.plain_words`, or of all if none is left."""
    keys = [word.key for word in words(text)]
    chosen = [key for key in keys if key not in plain_words()] or keys
    return {key for word in chosen for key in index_keys(word)}
