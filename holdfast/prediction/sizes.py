"""The sizes on which the memory of a run depends, of one configuration on one type of device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from holdfast.backbone.curvature import curvature_numbers
from holdfast.backbone.generation.cache import BLOCK
from holdfast.backbone.generation.graph import GRAPH_BLOCK
from holdfast.learning.config import RunConfig
from holdfast.prediction.lengths import Lengths
from holdfast.prediction.method import Mechanisms
from holdfast.prediction.passes import Grid, Passes
from holdfast.prediction.shape import Shape


@dataclass(frozen=True)
class Sizes:
    """w: bytes of a factor; p: P, trainable scalars; c: bytes of S and G of every adapted map."""

    shape: Shape
    config: RunConfig
    lengths: Lengths
    device: str

    @property
    def offloads(self) -> bool:
        """Whether what only moments need rests in the host's memory."""
        return self.device == "cuda" and self.config.backbone.offload

    @cached_property
    def uses(self) -> Mechanisms:
        return Mechanisms.of(self.config)

    @cached_property
    def passes(self) -> Passes:
        backbone = self.config.backbone
        return Passes(
            self.shape,
            self.device,
            dropout=self.config.lora.dropout > 0,
            checkpointing=backbone.checkpointing,
            short=backbone.attention == "auto",
            quantized=backbone.quantization != "none",
        )

    @property
    def w(self) -> int:
        """Bytes of a factor: float32, or float64 with a model of that."""
        return max(4, self.shape.scalar)

    @property
    def vector(self) -> int:
        """Bytes of one number for every trainable scalar."""
        return self.w * self.p

    @property
    def p(self) -> int:
        return self.shape.trainable + self.uses.seed_row * self.shape.width

    @cached_property
    def c(self) -> int:
        numbers = curvature_numbers(self.shape.readers(), self.config.curvature)
        return self.w * self.shape.layers * numbers

    @property
    def items(self) -> int:
        """Items that are trained on at once."""
        return self.lengths.items * (self.lengths.tasks if self.uses.joint else 1)

    @property
    def replayed(self) -> int:
        """Sequences that are replayed: samples, or stored items."""
        return self.uses.stored or self.config.sampling.samples

    @property
    def replay_length(self) -> float:
        return self.lengths.item if self.uses.stored else self.lengths.sample

    def minibatch(self) -> tuple[int, float]:
        """Rows of the largest minibatch, and the rows of one of its sequences."""
        size = min(self.config.optim.batch_size, self.items)
        return self.lengths.rows(size), self.lengths.item - 1

    def replay_minibatch(self) -> tuple[int, float]:
        if not self.uses.replays:
            return 0, 1
        size = self.config.optim.batch_size * self.config.data.minibatches_per_step
        size = min(size, self.replayed * self.config.data.minibatches_per_step)
        length = self.replay_length - 1
        return (self.lengths.rows(size) if self.uses.stored else round(size * length)), length

    @staticmethod
    def grid(rows: float, length: float) -> Grid:
        """Sequences side by side of about so many rows in all, and the rows of each."""
        longest = max(1, round(length))
        return max(1, round(rows / longest)), longest

    def reserved(self, positions: int) -> int:
        """The positions that a cache reserves for so many: whole blocks."""
        block = BLOCK if self.device == "cpu" else GRAPH_BLOCK
        return -(-positions // block) * block
