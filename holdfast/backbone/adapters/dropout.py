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
    gate and up) share one mask. On a CPU they come from 16-bit words of a fast bit generator, so
    the probability is rounded to 1/65536.
    kept: what a surviving entry is to be divided by (inverted dropout).
    """

    def __init__(self, probability: float) -> None:
        self.probability = probability
        self.kept = 1.0 - probability
        self._sources: list[_ProcessorMasks | _DeviceMasks] = []
        self._alone: int | None = None

    def reseed(self, seeds: Sequence[int], device: torch.device) -> None:
        """Start a new sequence of masks for each batch, on ``device``; no seeds: drop nothing."""
        self._alone = None
        if self.probability == 0:
            seeds = ()
        masks = _ProcessorMasks if device.type == "cpu" else _DeviceMasks
        self._sources = [masks(seed, device) for seed in seeds]

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
        for source, part in zip(sources, whole.split(list(rows)), strict=True):
            source.draw(part, self.probability)
        return whole


class _ProcessorMasks:
    """Out of 16-bit words, all equally likely, of a fast bit generator on the processor."""

    def __init__(self, seed: int, _: torch.device) -> None:
        self._bits = np.random.SFC64(seed)

    def draw(self, mask: Tensor, probability: float) -> None:
        """Let each entry be zero with ``probability``, else one."""
        count = mask.numel()
        words = torch.from_numpy(self._bits.random_raw(-(-count // 4)).view(np.int16))
        torch.ge(words[:count].view(mask.shape), round(65536 * probability) - 32768, out=mask)


class _DeviceMasks:
    """Out of a device's own generator."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._source = torch.Generator(device).manual_seed(seed)

    def draw(self, mask: Tensor, probability: float) -> None:
        """The same."""
        mask.bernoulli_(1 - probability, generator=self._source)
