"""Read a trajectory's directory."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json
from holdfast.core.own import regular
from holdfast.results.commit import read_matrix
from holdfast.results.description import Description, is_described
from holdfast.results.matrix import RecallMatrix

if TYPE_CHECKING:
    import pandas as pd

_OF_A_TASK = ("task", "steps", "replay_samples", "state_bytes", "peak_memory_bytes")


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
        """The events of log.jsonl, in their order; none where there is no log.

        Raises HoldfastError for a line that is no event.
        """
        return read_events(self.path)

    def losses(self) -> pd.DataFrame:
        """Each term of the loss by task and epoch, unweighted: ``task``, ``epoch``, the terms.

        Raises HoldfastError for a damaged log.
        """
        import pandas as pd

        rows = [
            {"task": event["task"], "epoch": epoch, **terms}
            for event in self._learned()
            for epoch, terms in enumerate(event["losses"], start=1)
        ]
        return pd.DataFrame(rows, columns=None if rows else ["task", "epoch"])

    def tasks(self) -> pd.DataFrame:
        """What each task took: ``task``, ``steps``, ``replay_samples``, ``state_bytes`` and
        ``peak_memory_bytes``, ``seconds`` in all and ``seconds_`` of each phase.

        Raises HoldfastError for a damaged log.
        """
        import pandas as pd

        rows = [
            {name: event[name] for name in _OF_A_TASK}
            | {"seconds": math.fsum(event["seconds"].values())}
            | {f"seconds_{phase}": seconds for phase, seconds in event["seconds"].items()}
            for event in self._learned()
        ]
        return pd.DataFrame(rows, columns=None if rows else [*_OF_A_TASK, "seconds"])

    def _learned(self) -> list[dict[str, Any]]:
        """The log's event of each task, checked."""
        found = []
        for number, event in enumerate(self.events(), start=1):
            if event.get("event") == "task":
                if not _tells_of_a_task(event):
                    raise _no_task(self.path, number)
                found.append(event)
        return found


def read_events(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a trajectory's log.jsonl in order; none if there is no log.

    A last line without a newline is skipped: it is still being written, or its writer was stopped.
    Raises HoldfastError for any other line that is no event.
    """
    log = directory / "log.jsonl"
    if not log.exists():
        return
    with _opened(log) as lines:
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


def _opened(path: Path) -> IO[bytes]:
    try:
        return regular(path).open("rb")
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error


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
            raise _no_task(directory, number) from None
    return found


def _tells_of_a_task(event: dict[str, Any]) -> bool:
    return (
        all(isinstance(event.get(name), int) for name in _OF_A_TASK)
        and isinstance(event.get("seconds"), dict)
        and isinstance(event.get("losses"), list)
        and all(isinstance(terms, dict) for terms in event["losses"])
    )


def _no_task(directory: Path, number: int) -> HoldfastError:
    return HoldfastError(
        f"{directory / 'log.jsonl'} line {number}: is no event of a task; restore the file"
    )


def _read_object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise HoldfastError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
