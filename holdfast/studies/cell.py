"""A cell: one trajectory to be advanced to one horizon, and its directory in a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.core.config import sha256_of
from holdfast.learning.config import RunConfig


@dataclass(frozen=True)
class Cell:
    """candidate: the name of its settings without the seed, for tables; horizon: tasks to learn;
    tracker: the experiment tracker that its worker reports to; group: of its run there.
    """

    candidate: str
    config: RunConfig
    horizon: int
    tracker: str | None = None
    group: str | None = None

    @property
    def key(self) -> str:
        """The directory name of its trajectory; cells that differ only in the horizon share it.

        The key covers only settings known before anything is loaded; the trajectory itself refuses
        a directory with other settings, weights or tasks.
        """
        config = self.config
        identity = {
            "numbers": config.numbers(),
            "stream": config.stream.model_dump(mode="json", exclude={"tasks"}),
            "backbone": config.backbone.name,
            "revision": config.backbone.revision,
        }
        return f"{config.method}-{config.seed}-{sha256_of(identity)[:12]}"

    def directory(self, store: Path) -> Path:
        """The trajectory's directory."""
        return store / self.key


def with_tracker(tracker: str | None, study: Path, cells: Sequence[Cell]) -> list[Cell]:
    """The cells with this tracker, in a group with the name of the study's directory."""
    group = study.resolve().name if tracker else None
    return [replace(cell, tracker=tracker, group=group) for cell in cells]


@dataclass(frozen=True)
class Outcome:
    """The result of a cell. learned: number of tasks learned by this call; error: why it failed."""

    cell: Cell
    learned: int
    seconds: float
    error: str | None = None
