"""Read a trajectory's directory."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json
from holdfast.results.commit import read_matrix
from holdfast.results.description import Description, is_described
from holdfast.results.matrix import RecallMatrix


@dataclass(frozen=True)
class RunRecord:
    """The record of one trajectory, finished or not; reading it needs no torch.

    description: config.json; matrix: recall at the last commit, empty before the first boundary;
    metrics: metrics.json, None until it is written.
    """

    path: Path
    description: Description
    matrix: RecallMatrix
    metrics: dict[str, Any] | None

    @classmethod
    def open(cls, path: Path | str) -> RunRecord:
        """Read a trajectory's directory.

        Raises HoldfastError if it has no config.json or a file in it is damaged.
        """
        path = Path(path)
        if not is_described(path):
            raise HoldfastError(
                f"{path}: not a trajectory (no config.json); "
                "give a directory that `holdfast run --out` wrote"
            )
        metrics = path / "metrics.json"
        return cls(
            path=path,
            description=Description.read(path),
            matrix=read_matrix(path),
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

    A last line without a newline is skipped: it is still being written, or its writer was stopped.
    Raises HoldfastError for any other line that is no event.
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


def task_seconds(directory: Path, horizon: int) -> list[float]:
    """The seconds of each task up to a horizon, from the log; empty if there is none.

    Raises HoldfastError for a line that is no event, or a task's that tells no seconds.
    """
    found = []
    for number, event in enumerate(read_events(directory), start=1):
        try:
            if event.get("event") == "task" and event["task"] <= horizon:
                found.append(math.fsum(event["seconds"].values()))
        except (KeyError, TypeError, AttributeError):
            raise HoldfastError(
                f"{directory / 'log.jsonl'} line {number}: is no event of a task; restore the file"
            ) from None
    return found


def _read_object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise HoldfastError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
