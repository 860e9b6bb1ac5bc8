"""What a draw is checked against."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)


def warped(logits: Tensor, temperature: float, top_p: float, top_k: int | None) -> Tensor:
    """The distribution from which ``model.generate`` draws: [rows, vocabulary]."""
    ids = torch.zeros(len(logits), 1, dtype=torch.long)
    scores = TemperatureLogitsWarper(temperature)(ids, logits)  # type: ignore[arg-type]
    if top_k is not None:
        scores = TopKLogitsWarper(top_k)(ids, scores)  # type: ignore[arg-type]
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(ids, scores)  # type: ignore[arg-type]
    return scores.softmax(dim=-1)
