"""Dropout of the low-rank branch's input, drawn from named sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Sources of masks, each with the state that its next mask is drawn from.
Marks = Sequence[tuple[Any, Any]]
# How many rows a whole batch has, and which of them a pass holds.
Part = tuple[int, Tensor]


class Dropout:
    """Dropout masks from named seeds, never from a global generator.

    Rows of several batches pass at once. Each batch has its own generator, so its masks do not
    depend on the batches beside it. Maps that read the same tensor (q, k and v;
    gate and up) share one mask. On a CPU they come from 16-bit words of a fast bit generator, so
    the probability is rounded to 1/65536.
    kept: the probability of keeping an entry, by which kept entries are divided (inverted dropout).
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
        """The next pass holds this batch alone."""
        self._alone = batch

    def shared(self, parts: Sequence[Part | None]) -> None:
        """The next pass holds a part of the rows of each batch: how many there are, and which.

        The masks of all rows are drawn and those of the part taken, so that the processes that
        share a minibatch drop together what one drops alone.
        """
        for source, part in zip(self._sources, parts, strict=bool(self._sources)):
            source.part = part

    def mask(self, rows: Sequence[int], like: Tensor) -> Tensor | None:
        """Zeros and ones [sum of rows, d] for tensors [..., d]; None when nothing is dropped.

        rows: of each batch, in the order of the seeds.
        """
        sources = self._drawing()
        if not sources:
            return None
        # Bytes where memory is dear, the precision of the product where conversion is.
        dtype = like.dtype if like.device.type == "cpu" else torch.bool
        whole = torch.empty(sum(rows), like.shape[-1], dtype=dtype, device=like.device)
        for source, own in zip(sources, whole.split(list(rows)), strict=True):
            if source.part is None:
                source.draw(own, self.probability)
                continue
            count, places = source.part
            drawn = own.new_empty(count, own.shape[1])
            source.draw(drawn, self.probability)
            torch.index_select(drawn, 0, places, out=own)
        return whole

    def mark(self) -> Marks:
        """Where the sequences of masks stand, to draw what follows a second time."""
        return [(source, source.state) for source in self._drawing()]

    @contextmanager
    def rewound(self, marks: Marks) -> Iterator[None]:
        """Within the block the masks are those that followed ``marks``."""
        before = self._sources, self._alone
        now = [(source, source.state) for source, _ in marks]
        self._sources, self._alone = [source for source, _ in marks], None
        try:
            for source, state in marks:
                source.state = state
            yield
        finally:
            self._sources, self._alone = before
            for source, state in now:
                source.state = state

    def _drawing(self) -> Sequence[_ProcessorMasks | _DeviceMasks]:
        return self._sources if self._alone is None else self._sources[self._alone :][:1]


class _ProcessorMasks:
    """Masks from uniform 16-bit words of a fast bit generator on the CPU."""

    def __init__(self, seed: int, _: torch.device) -> None:
        self.part: Part | None = None
        self._bits = np.random.SFC64(seed)

    @property
    def state(self) -> Any:
        return self._bits.state

    @state.setter
    def state(self, value: Any) -> None:
        self._bits.state = value

    def draw(self, mask: Tensor, probability: float) -> None:
        """Set each entry to 0 with ``probability``, else to 1."""
        count = mask.numel()
        words = torch.from_numpy(self._bits.random_raw(-(-count // 4)).view(np.int16))
        torch.ge(words[:count].view(mask.shape), round(65536 * probability) - 32768, out=mask)


class _DeviceMasks:
    """Masks from a device's own generator."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.part: Part | None = None
        self._source = torch.Generator(device).manual_seed(seed)

    @property
    def state(self) -> Tensor:
        return self._source.get_state()

    @state.setter
    def state(self, value: Tensor) -> None:
        self._source.set_state(value)

    def draw(self, mask: Tensor, probability: float) -> None:
        """Set each entry to 0 with ``probability``, else to 1."""
        mask.bernoulli_(1 - probability, generator=self._source)
