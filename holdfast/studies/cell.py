"""A cell: one trajectory to be advanced to one horizon, and its directory in a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.core.config import sha256_of
from holdfast.learning.config import RunConfig


@dataclass(frozen=True)
class Cell:
    """candidate: the name of its settings without the seed, for tables; horizon: tasks to learn."""

    candidate: str
    config: RunConfig
    horizon: int

    @property
    def key(self) -> str:
        """The directory name of its trajectory; cells that differ only in the horizon share it.

        The key covers only what is known before anything is loaded; the trajectory itself refuses
        a directory with other settings, weights or tasks.
        """
        config = self.config
        stream = config.stream.model_dump(mode="json", exclude={"tasks"})
        told = {"numbers": config.numbers(), "stream": stream, "backbone": config.backbone.name}
        if config.backbone.revision is not None:
            told["revision"] = config.backbone.revision
        return f"{config.method}-{config.seed}-{sha256_of(told)[:12]}"

    def directory(self, store: Path) -> Path:
        """The trajectory's directory."""
        return store / self.key


@dataclass(frozen=True)
class Outcome:
    """The result of a cell. learned: number of tasks learned by this call; error: why it failed."""

    cell: Cell
    learned: int
    seconds: float
    error: str | None = None
