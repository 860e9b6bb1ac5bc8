"""A cell: one trajectory advanced to one horizon, and where it lies in a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.core.config import sha256_of
from holdfast.learning.config import RunConfig


@dataclass(frozen=True)
class Cell:
    """candidate: what tables call its settings without the seed; horizon: tasks to be learned."""

    candidate: str
    config: RunConfig
    horizon: int

    @property
    def key(self) -> str:
        """The name of its trajectory in any store: two cells share it when only horizons differ.

        The trajectory itself refuses a directory whose recorded settings, weights or tasks are
        others; the key only keeps apart what is known before anything is loaded.
        """
        config = self.config
        stream = config.stream.model_dump(mode="json", exclude={"tasks"})
        told = {"numbers": config.numbers(), "stream": stream, "backbone": config.backbone.name}
        return f"{config.method}-{config.seed}-{sha256_of(told)[:12]}"

    def directory(self, store: Path) -> Path:
        """The trajectory's directory."""
        return store / self.key


@dataclass(frozen=True)
class Outcome:
    """What became of a cell. learned: tasks that this call had to learn; error: why it failed."""

    cell: Cell
    learned: int
    seconds: float
    error: str | None = None
