"""Whether a question is about a taught fact, and which.

Two questions are one when they name the same things and ask the same of them. What they name is
compared as words; what they ask, by the untouched model's states at the other words, as how
probably each of 600 relations is asked for. A logistic probe finds the words of the name: behind a
few layers the untouched model holds at each token whether it belongs to one, with capitals or
without (``the thunder tortoise``). The decision is a logistic function of both; its threshold
follows from the same relations. :mod:`holdfast.memory.gate_tuning` fits all of it to a model.
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
Span = tuple[int, int]  # of a text, the end excluded

_TEMPERATURE = 0.05  # of the softmax over relations; chosen on the development set
_LEAST_ASKING = 1e-3  # a token's part in the mean, when it is certainly of a name
_LEAST_NAMING = 0.1  # probability; words with less name nothing
# Of a token's word: whether it has a capital or a digit behind the first word, and whether the
# library asks with it. A standardized state has 1 at each place, so they count about as much.
_HINTS = 2
_CANDIDATES = 64
_AS_LIKELY = 1.0  # nats between two facts that a question may ask for
_WAITING = 32  # of a question; reading one takes some milliseconds
# Of the taught question's naming weight, less what the asked one names beside it; below, another
# thing is named, whatever is asked ("the silver key" for "the brass key").
_LEAST_AGREED = 0.5


@dataclass(frozen=True)
class QuestionLook:
    """What the gate compares of a question.

    names: what it names; vector: the square roots of what it asks, how probably each relation of
    the library [relations], so that the product of two is their Bhattacharyya coefficient.
    """

    names: Names
    vector: Vectors


@dataclass(frozen=True)
class GateTuning:
    """What is fitted.

    key: of the model, its template and the library; depths: numbers of the hidden states; probe: at
    the last of them; mean: [depths * d]; projection: [depths * d, m]; centres: of the relations,
    [relations, m]; weights: of likeness, covered, extra and 1; positive sums are accepted.
    """

    key: str
    depths: tuple[int, ...]
    probe: NameProbe
    mean: torch.Tensor
    projection: torch.Tensor
    centres: torch.Tensor
    weights: tuple[float, ...]

    def look(self, text: str, spans: Sequence[Span], states: torch.Tensor) -> QuestionLook:
        """What a question names and asks. spans: of its tokens; states: [depths, tokens, d]."""
        probabilities = self.probe.probabilities(text, spans, states[-1])
        names = self.probe.names(text, spans, probabilities)
        return QuestionLook(
            names, self.vectors(asking_states(states, probabilities)[None])[0].numpy()
        )

    def vectors(self, states: torch.Tensor) -> torch.Tensor:
        """States [n, depths, d] as the vectors of looks: unit vectors [n, relations]."""
        directions = directions_of(states.flatten(1) - self.mean, self.projection)
        return torch.softmax(directions @ self.centres.T / _TEMPERATURE, dim=1).sqrt()

    def score(self, likeness: float, covered: float, extra: float) -> float:
        """Above 0 two questions are one; features as of :func:`.words.agreement` and a cosine."""
        features = (likeness, covered, extra, 1.0)
        return sum(weight * value for weight, value in zip(self.weights, features, strict=True))


def asking_states(states: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
    """The mean state of the tokens that are of no name: [depths, d].

    states: [depths, tokens, d]; probabilities: [tokens], of belonging to a name.
    """
    weights = (1 - probabilities).clamp(min=_LEAST_ASKING)
    return torch.einsum("ktd,t->kd", states.float(), weights / weights.sum())


def directions_of(centred: torch.Tensor, projection: torch.Tensor) -> torch.Tensor:
    """Unit vectors [n, m] of centred states [n, depths * d]."""
    return F.normalize(centred @ projection, dim=1)


@dataclass(frozen=True)
class NameProbe:
    """A logistic function of a token's state: whether it belongs to the name in a question.

    mean, scale: [d]; weights: [d + hints + 1].
    """

    mean: torch.Tensor
    scale: torch.Tensor
    weights: torch.Tensor

    def probabilities(self, text: str, spans: Sequence[Span], states: torch.Tensor) -> torch.Tensor:
        """That each token belongs to a name: [tokens].

        spans: of the text's tokens; states: [tokens, d], of the depth that the probe was fitted at.
        """
        inputs = torch.cat([(states.float() - self.mean) / self.scale, hints_of(text, spans)], 1)
        return torch.sigmoid(inputs @ self.weights[:-1] + self.weights[-1])

    def names(
        self, text: str, spans: Sequence[Span], probabilities: torch.Tensor
    ) -> dict[str, float]:
        """Every word with the weight with which it names something: tokens times probability.

        A word's probability is its likeliest token's, since the first one may not tell. Where no
        word names anything, those with which the library does not ask stand for it.
        """
        weights: dict[str, float] = {}
        for token in tokens_of_words(text, spans):
            probability = max(probabilities[list(token.rows)].tolist(), default=0.0)
            weight = len(token.rows) * probability if probability >= _LEAST_NAMING else 0.0
            weights[token.word.key] = max(weights.get(token.word.key, 0.0), weight)
        if sum(weights.values()) >= NAMED:
            return weights
        return {word: float(word not in plain_words()) for word in weights}


@dataclass(frozen=True)
class Token:
    """Where a word's tokens lie. rows: their numbers in the question's text."""

    word: Word
    rows: tuple[int, ...]


def tokens_of_words(text: str, spans: Sequence[Span]) -> list[Token]:
    """The tokens of each word, those of blanks and punctuation beside it left out."""
    tokens = []
    inner = [(row, *span) for row, span in enumerate(spans) if words(text[slice(*span)])]
    for word in words(text):
        rows = [row for row, begin, end in inner if begin < word.end and end > word.begin]
        tokens.append(Token(word, tuple(rows)))
    return tokens


def hints_of(text: str, spans: Sequence[Span]) -> torch.Tensor:
    """[tokens, hints]."""
    hints = [[0.0] * _HINTS for _ in spans]
    plain = plain_words()
    for number, token in enumerate(tokens_of_words(text, spans)):
        hint = [float(number > 0 and token.word.is_marked), float(token.word.key in plain)]
        for row in token.rows:
            hints[row] = hint
    return torch.tensor(hints, dtype=torch.float32).view(len(spans), _HINTS)


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
        self._words: set[str] = set()  # that name something, as they are written
        self._unnamed: list[int] = []
        for look, owner in zip(looks, owners, strict=True):
            self.add(look, owner)

    def add(self, look: QuestionLook, owner: int) -> None:
        """Take up a further question of a fact."""
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

        None where none names the same, and where the question has no word that tells two facts
        apart (*Where was Tindle born?* of Orsa Tindle and Ada Tindle).
        """
        scored = ((row, self._match(row, asked)) for row in self._candidates(asked))
        matches = {row: match for row, match in scored if match is not None}
        best = max(matches, key=lambda row: matches[row].score, default=None)
        if best is None or self._is_ambiguous(best, matches, asked.names):
            return None
        return matches[best]

    def _is_ambiguous(self, best: int, matches: Mapping[int, Match], asked: Names) -> bool:
        """Whether another fact of about that score shares the same words, and lacks others."""
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


class WaitingQuestions:
    """Questions of facts that wait to be learned, for the gate once somebody may ask for them.

    They are found by the words that they share, since nobody has read them yet.
    """

    def __init__(self, questions: Iterable[tuple[int, str]]) -> None:
        """questions: the number of the fact, and the text."""
        self._unread = dict(enumerate(questions))
        self._by_key: dict[str, list[int]] = defaultdict(list)
        for number, (_, text) in self._unread.items():
            for key in _keys(text):
                self._by_key[key].append(number)

    def about(self, asked: Sequence[str]) -> list[tuple[int, str]]:
        """The questions that share most words with those asked; each is given once."""
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
    """Of the words that the library of relations does not ask with; of all if there are none."""
    keys = [word.key for word in words(text)]
    chosen = [key for key in keys if key not in plain_words()] or keys
    return {key for word in chosen for key in index_keys(word)}
