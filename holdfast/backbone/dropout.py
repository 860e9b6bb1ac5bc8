"""Dropout of the low-rank branch's input, drawn from a named source."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Dropout:
    """Inverted dropout whose masks come from a named seed, never from a global generator.

    Maps that read the same tensor (q, k and v; gate and up) see the same dropped input: the mask
    belongs to the input, it is drawn once and kept once for the backward pass. On a CPU the
    masks are 16-bit words of a fast bit generator, so the probability is rounded to 1/65536.
    """

    def __init__(self, probability: float) -> None:
        self.probability = probability
        self.reseed(None, torch.device("cpu"))

    def reseed(self, seed: int | None, device: torch.device) -> None:
        """Start a new sequence of masks for tensors on ``device``; None: drop nothing."""
        self.active = seed is not None and self.probability > 0
        self._words: np.random.Generator | None = None
        self._source: torch.Generator | None = None
        if seed is not None and device.type == "cpu":
            self._words = np.random.Generator(np.random.SFC64(seed))
        elif seed is not None:
            self._source = torch.Generator(device).manual_seed(seed)
        self._input: Tensor | None = None
        self._dropped: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """x: [..., d] -> the same shape, each entry zero or divided by 1 - probability."""
        if not self.active:
            return x
        if self._dropped is None or x is not self._input:
            self._input, self._dropped = x, x * self._mask(x)
        return self._dropped

    def _mask(self, x: Tensor) -> Tensor:
        keep = 1.0 - self.probability
        if self._words is None:
            mask = torch.empty_like(x).bernoulli_(keep, generator=self._source)
        else:
            raw = bytearray(self._words.bytes(2 * x.numel()))
            words = torch.frombuffer(raw, dtype=torch.int16)
            mask = (words >= round(65536 * self.probability) - 32768).to(x.dtype).view(x.shape)
        return mask.div_(keep)
