"""Dropout of the low-rank branch's input, drawn from named sources."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class Dropout:
    """Masks that come from named seeds, never from a global generator.

    Rows from several batches pass at once; each batch has a source of its own, so that what is
    drawn for one does not depend on its company. Maps that read the same tensor (q, k and v;
    gate and up) share one mask. On a CPU the masks are 16-bit words of a fast bit generator, so
    the probability is rounded to 1/65536.
    kept: what a surviving entry is to be divided by (inverted dropout).
    """

    def __init__(self, probability: float) -> None:
        self.probability = probability
        self.kept = 1.0 - probability
        self._sources: list[_Words | _DeviceWords] = []
        self._alone: int | None = None

    def reseed(self, seeds: Sequence[int], device: torch.device) -> None:
        """Start a new sequence of masks for each batch, on ``device``; no seeds: drop nothing."""
        self._alone = None
        if self.probability == 0:
            seeds = ()
        words = _Words if device.type == "cpu" else _DeviceWords
        self._sources = [words(seed, device) for seed in seeds]

    def alone(self, batch: int) -> None:
        """What passes next is this batch by itself."""
        self._alone = batch

    def mask(self, rows: Sequence[int], like: Tensor) -> Tensor | None:
        """Zeros and ones [sum of rows, d] for tensors [..., d]; None when nothing is dropped.

        rows: how many come from each batch, in the order of the seeds.
        """
        sources = self._sources if self._alone is None else self._sources[self._alone :][:1]
        if not sources:
            return None
        # Bytes where memory is dear, the precision of the product where conversion is.
        dtype = like.dtype if like.device.type == "cpu" else torch.bool
        whole = torch.empty(sum(rows), like.shape[-1], dtype=dtype, device=like.device)
        threshold = round(65536 * self.probability) - 32768
        for source, part in zip(sources, whole.split(list(rows)), strict=True):
            torch.ge(source.take(part.numel()).view(part.shape), threshold, out=part)
        return whole


class _Words:
    """16-bit words, -32768 to 32767, all equally likely, of a bit generator on the processor."""

    def __init__(self, seed: int, _: torch.device) -> None:
        self._bits = np.random.SFC64(seed)

    def take(self, count: int) -> Tensor:
        """The next words: [count]."""
        words = self._bits.random_raw(-(-count // 4)).view(np.int16)
        return torch.from_numpy(words)[:count]


class _DeviceWords:
    """The same of a device's own generator."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._source = torch.Generator(device).manual_seed(seed)

    def take(self, count: int) -> Tensor:
        """The next words: [count]."""
        words = torch.empty(-(-count // 4), dtype=torch.int64, device=self._source.device)
        words.random_(-(2**63), None, generator=self._source)
        return words.view(torch.int16)[:count]
