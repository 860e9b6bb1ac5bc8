"""A trajectory's directory, as its readers see it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json
from holdfast.results.description import Description, is_described
from holdfast.results.matrix import RecallMatrix


@dataclass(frozen=True)
class RunRecord:
    """What one trajectory, finished or not, has left on disk; reading it needs no torch.

    description: config.json; matrix: matrix.csv, empty before the first boundary;
    metrics: metrics.json, None until it is written.
    """

    path: Path
    description: Description
    matrix: RecallMatrix
    metrics: dict[str, Any] | None

    @classmethod
    def open(cls, path: Path | str) -> RunRecord:
        """Read a trajectory's directory.

        Raises HoldfastError if it is none (it has no config.json) or a file in it is damaged.
        """
        path = Path(path)
        if not is_described(path):
            raise HoldfastError(
                f"{path}: not a trajectory (no config.json); "
                "give a directory that `holdfast run --out` wrote"
            )
        matrix, metrics = path / "matrix.csv", path / "metrics.json"
        return cls(
            path=path,
            description=Description.read(path),
            matrix=RecallMatrix.load(matrix) if matrix.exists() else RecallMatrix(),
            metrics=_read_object(metrics) if metrics.exists() else None,
        )

    @property
    def horizon(self) -> int:
        """The number of tasks learned at the last observed row."""
        return self.matrix.horizon

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of log.jsonl; see :func:`read_events`."""
        return read_events(self.path)


def read_events(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a trajectory's log.jsonl in order; none if there is no log.

    A last line without its newline is skipped: it is being written, or the writer was stopped in
    the middle of it. Raises HoldfastError for any other line that is no event.
    """
    log = directory / "log.jsonl"
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
