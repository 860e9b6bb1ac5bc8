"""A trajectory's directory, as its readers see it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json
from holdfast.results.matrix import RecallMatrix


def is_trajectory(path: Path) -> bool:
    """Whether a directory holds one trajectory; HoldfastError for a study of many."""
    if (path / "study.json").is_file():
        cells = sorted(cell.parent for cell in path.glob("cells/*/config.json"))
        named = f", such as {cells[0]}" if cells else ""
        raise HoldfastError(f"{path}: is a study of many; give one of its trajectories{named}")
    if not (path / "config.json").is_file():
        return False
    values = read_json(path / "config.json")
    return isinstance(values, dict) and "numbers" in values


@dataclass(frozen=True)
class RunRecord:
    """What one trajectory, finished or not, has left on disk; reading it needs no torch.

    config: config.json; matrix: matrix.csv, empty before the first boundary;
    metrics: metrics.json, None until it is written.
    """

    path: Path
    config: dict[str, Any]
    matrix: RecallMatrix
    metrics: dict[str, Any] | None

    @classmethod
    def open(cls, path: Path | str) -> RunRecord:
        """Read a trajectory's directory.

        Raises HoldfastError if it is none (it has no config.json) or a file in it is damaged.
        """
        path = Path(path)
        if not (path / "config.json").is_file():
            raise HoldfastError(
                f"{path}: not a trajectory (no config.json); "
                "give a directory that `holdfast run --out` wrote"
            )
        matrix, metrics = path / "matrix.csv", path / "metrics.json"
        return cls(
            path=path,
            config=_read_object(path / "config.json"),
            matrix=RecallMatrix.load(matrix) if matrix.exists() else RecallMatrix(),
            metrics=_read_object(metrics) if metrics.exists() else None,
        )

    @property
    def horizon(self) -> int:
        """The number of tasks learned at the last observed row."""
        return self.matrix.horizon

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of log.jsonl in order; none if there is no log.

        A last line without its newline is skipped: it is being written, or the writer was
        stopped in the middle of it. Raises HoldfastError for any other line that is no event.
        """
        log = self.path / "log.jsonl"
        if not log.exists():
            return
        with log.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise HoldfastError(f"{log} line {number}: not JSON ({error})") from error
                if not isinstance(event, dict):
                    raise HoldfastError(f"{log} line {number}: an event is a JSON object")
                yield event


def _read_object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise HoldfastError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
