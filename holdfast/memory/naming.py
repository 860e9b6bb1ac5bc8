"""Which words of a question are the name of what it asks about: a logistic probe of the model.

Once a model, with the library of relations, whose names are known. Behind a few layers the
untouched model holds at each token whether it belongs to a name, with capitals or without
(``the thunder tortoise``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from holdfast.core.seeding import generator
from holdfast.memory.words import NAMED, Word, plain_words, words

Span = tuple[int, int]  # of a text, the end excluded
_STEPS, _LR, _DECAY, _BATCH = 300, 3e-3, 0.3, 2048
_LEAST = 0.1  # probability; words with less name nothing
# Of a token's word: whether it has a capital or a digit behind the first word, and whether the
# library asks with it. A standardized state has 1 at each place, so they count about as much.
_HINTS = 2


@dataclass(frozen=True)
class Token:
    """Where a word's tokens lie. rows: their numbers in the question's text."""

    word: Word
    rows: tuple[int, ...]


@dataclass(frozen=True)
class NameProbe:
    """A logistic function of a token's state. mean, scale: [d]; weights: [d + hints + 1]."""

    mean: torch.Tensor
    scale: torch.Tensor
    weights: torch.Tensor

    def probabilities(self, text: str, spans: Sequence[Span], states: torch.Tensor) -> torch.Tensor:
        """That each token belongs to a name: [tokens].

        spans: of the text's tokens; states: [tokens, d], of the depth that the probe was fitted at.
        """
        inputs = torch.cat([(states.float() - self.mean) / self.scale, _hints(text, spans)], 1)
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
            weight = len(token.rows) * probability if probability >= _LEAST else 0.0
            weights[token.word.key] = max(weights.get(token.word.key, 0.0), weight)
        if sum(weights.values()) >= NAMED:
            return weights
        return {word: float(word not in plain_words()) for word in weights}


def fit_probe(
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]],
    states: Sequence[torch.Tensor],
    names: Sequence[Span],
) -> NameProbe:
    """Fit a probe to questions in which a part is the name. spans, states: as of the probe."""
    inputs = torch.cat([tensor.float() for tensor in states])
    mean, scale = inputs.mean(0), inputs.std(0) + 1e-6
    hints = torch.cat([_hints(text, parts) for text, parts in zip(texts, spans, strict=True)])
    inputs = torch.cat([(inputs - mean) / scale, hints], 1)
    target = torch.tensor([
        float(begin < name[1] and end > name[0] and end > begin)
        for parts, name in zip(spans, names, strict=True)
        for begin, end in parts
    ])  # fmt: skip
    weights = torch.zeros(inputs.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.AdamW([weights], lr=_LR, weight_decay=_DECAY)
    drawn = generator(0, "names")
    for _ in range(_STEPS):
        rows = torch.randint(len(inputs), (_BATCH,), generator=drawn)
        logits = inputs[rows] @ weights[:-1] + weights[-1]
        loss = F.binary_cross_entropy_with_logits(logits, target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return NameProbe(mean, scale, weights.detach())


def tokens_of_words(text: str, spans: Sequence[Span]) -> list[Token]:
    """The tokens of each word, those of blanks and punctuation beside it left out."""
    tokens = []
    inner = [(row, *span) for row, span in enumerate(spans) if words(text[slice(*span)])]
    for word in words(text):
        rows = [row for row, begin, end in inner if begin < word.end and end > word.begin]
        tokens.append(Token(word, tuple(rows)))
    return tokens


def _hints(text: str, spans: Sequence[Span]) -> torch.Tensor:
    """[tokens, hints]."""
    hints = [[0.0] * _HINTS for _ in spans]
    plain = plain_words()
    for number, token in enumerate(tokens_of_words(text, spans)):
        hint = [float(number > 0 and token.word.is_marked), float(token.word.key in plain)]
        for row in token.rows:
            hints[row] = hint
    return torch.tensor(hints, dtype=torch.float32).view(len(spans), _HINTS)
