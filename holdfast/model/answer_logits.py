"""Logits at the tokens of answers, and no others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class AnswerLogits:
    """Logits at every token of some answers, one answer after another.

    logits: [tokens, vocabulary], each row predicts ``targets`` [tokens] at its place; answer:
    [tokens], the number of the answer a row belongs to; stops: the tokens that end an answer.
    """

    logits: torch.Tensor
    targets: torch.Tensor
    answer: torch.Tensor
    stops: tuple[int, ...] = ()

    def losses(self) -> torch.Tensor:
        """Cross-entropy of each answer in nats, the mean over its tokens: [answers]."""
        each = F.cross_entropy(self.logits, self.targets, reduction="none")
        count = int(self.answer[-1]) + 1
        sums = each.new_zeros(count).index_add(0, self.answer, each)
        return sums / torch.bincount(self.answer, minlength=count)

    def margins(self) -> torch.Tensor:
        """The least lead of an answer's tokens over every other token, in nats: [answers].

        Negative where greedy decoding would leave the answer. Any of the stops ends it.
        """
        logits = self.logits.detach()
        is_right = F.one_hot(self.targets, logits.shape[1]).bool()
        if self.stops:
            stops = torch.tensor(self.stops, device=logits.device)
            ending = torch.isin(self.targets, stops)
            is_right[:, stops] |= ending[:, None]
        right = logits.masked_fill(~is_right, float("-inf")).amax(1)
        others = logits.masked_fill(is_right, float("-inf")).amax(1)
        least = logits.new_full((int(self.answer[-1]) + 1,), float("inf"))
        return least.scatter_reduce(0, self.answer, right - others, "amin")


@contextlib.contextmanager
def logits_at(model: Any, rows: Sequence[int], columns: Sequence[int]) -> Iterator[None]:
    """Within the block a pass gives logits [1, places, vocabulary], at these rows and columns.

    The head at all tokens costs as much as the decoder does, in a small model. transformers' own
    ``logits_to_keep`` takes the same columns of every row, and torch then multiplies a copy of the
    head for each row.
    """
    head = model.get_output_embeddings()

    def gather(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        hidden = inputs[0]
        row_index = torch.tensor(rows, device=hidden.device)
        column_index = torch.tensor(columns, device=hidden.device)
        return hidden[row_index, column_index][None]

    with head.register_forward_pre_hook(gather):
        yield
