"""A second look at a pair of questions: how readily the model rewords one as the other.

The projection of the first look hears the frame of a question louder than its words ("How many
brothers ..." and "How many gnomes ..."). Here the untouched model is asked to say the taught
question in other words. What counts is how much more probable the asked question becomes by that
than by a request that names the same thing and nothing else, and the same the other way round: the
pointwise mutual information of two questions, in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from holdfast.memory.chat.limits import Limits
from holdfast.memory.chat.words import Names, named
from holdfast.model.reading import PromptReader

_REWORD = "Ask this question in other words: {}"
_ABOUT = "Tell me something about {}."
_BATCH = 16
# Of the information, and the constant. Both were chosen on 120 facts of the development set:
# with the adapters' say, 84% of other wordings are then taken for the taught question, and 11% of
# questions about another relation of the same thing, if the two are independent.
BY_INFORMATION, CONSTANT = 0.05, -0.9
# First scores outside are too far from 0 for the second look to change the decision.
UNCERTAIN = (-3.0, 3.0)


def is_comparable(limits: Limits, taught: str, asked: str) -> bool:
    """Whether the model's context holds either question beside the request for it."""
    pairs = ((taught, asked), (asked, taught))
    return all(limits.fits_answered(_REWORD.format(one), other) for one, other in pairs)


@dataclass(frozen=True)
class Pair:
    """A taught question and an asked one. names: what the taught one names."""

    taught: str
    asked: str
    names: Names

    @property
    def subject(self) -> str:
        """What both are about, as the taught question writes it."""
        return " ".join(word.text for word in named(self.taught, self.names)) or "it"


def second_scores(
    reader: PromptReader, pairs: Sequence[Pair], first: Sequence[float]
) -> list[float]:
    """Scores of pairs of questions; above 0 they are one. first: the first look's scores."""
    return [
        score + BY_INFORMATION * information + CONSTANT
        for score, information in zip(first, mutual_information(reader, pairs), strict=True)
    ]


def mutual_information(reader: PromptReader, pairs: Sequence[Pair]) -> list[float]:
    """For each pair of questions the pointwise information both ways, added up, in nats."""
    requests, targets = [], []
    for pair in pairs:
        for one, other in ((pair.taught, pair.asked), (pair.asked, pair.taught)):
            requests += [_REWORD.format(one), _ABOUT.format(pair.subject)]
            targets += [other, other]
    likelihoods = _log_likelihoods(reader, requests, targets)
    gains = likelihoods[0::2] - likelihoods[1::2]
    total: list[float] = (gains[0::2] + gains[1::2]).tolist()
    return total


@torch.no_grad()
def _log_likelihoods(
    reader: PromptReader, requests: Sequence[str], targets: Sequence[str]
) -> torch.Tensor:
    """``log p(target | request)`` by the untouched model, in nats: [n]."""
    found = torch.empty(len(requests), dtype=torch.float64)
    order = sorted(range(len(requests)), key=lambda place: len(requests[place]))
    for begin in range(0, len(order), _BATCH):
        places = order[begin : begin + _BATCH]
        readings = reader.read([reader.form.question(requests[place]) for place in places])
        # Without the end of the answer, which says nothing about the question.
        answers = [reader.form.answer(targets[place])[:-1] for place in places]
        logits = reader.answer_logits(readings, answers)
        each = -F.cross_entropy(logits.logits, logits.targets, reduction="none")
        sums = each.new_zeros(len(places)).index_add(0, logits.answer, each)
        found[places] = sums.double().cpu()
    return found
