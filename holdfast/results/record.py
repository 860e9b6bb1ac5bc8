"""Read a trajectory's directory without torch: config.json, the last commit, matrix and log."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.config import read_format, sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import make_folder, read_bytes, read_json, write_json
from holdfast.results.matrix import RecallMatrix

if TYPE_CHECKING:
    import pandas as pd

CONFIG_FILE = "config.json"
# ``numbers`` has these in another form: "auto" resolved, the backbone's fingerprint alone.
_RESOLVED = ("evaluation.match", "backbone")


def is_described(directory: Path) -> bool:
    """Whether a directory has a config.json, of a trajectory or of something else."""
    return (directory / CONFIG_FILE).is_file()


@dataclass(frozen=True)
class Description:
    """The contents of config.json.

    config: all settings, nested; numbers: those that affect results; identity: sha256 of numbers;
    stream: its name, number of tasks and fingerprint; backbone: its name and fingerprint;
    versions: of the libraries.
    """

    config: Mapping[str, Any]
    identity: str
    numbers: Mapping[str, Any]
    stream: Mapping[str, Any]
    backbone: Mapping[str, Any]
    versions: Mapping[str, Any]

    @classmethod
    def read(cls, directory: Path) -> Description:
        """Read config.json; HoldfastError if it is missing, damaged, edited or no trajectory's."""
        path = directory / CONFIG_FILE
        values = read_format(path)
        try:
            description = cls(
                config=dict(values["config"]),
                identity=str(values["identity"]),
                numbers=dict(values["numbers"]),
                stream={name: values["stream"][name] for name in ("name", "tasks", "fingerprint")},
                backbone={name: values["backbone"][name] for name in ("name", "fingerprint")},
                versions=dict(values["versions"]),
            )
        except (KeyError, TypeError, ValueError):
            raise HoldfastError(
                f"{path}: is no trajectory's configuration; restore the file, or choose another "
                "directory"
            ) from None
        edited = next(_edited(description.config, description.numbers), None)
        if edited is None and sha256_of(description.numbers) != description.identity:
            edited = "its numbers are not those of its identity"
        if edited:
            raise HoldfastError(
                f"{path}: was edited after the trajectory began ({edited}); restore the file"
            )
        return description


def _edited(config: Any, numbers: Any, place: str = "") -> Iterator[str]:
    """Yield the settings that config and numbers both have, with different values."""
    if isinstance(config, Mapping) and isinstance(numbers, Mapping):
        for name in numbers.keys() & config.keys():
            yield from _edited(config[name], numbers[name], f"{place}.{name}" if place else name)
    elif config != numbers and place not in _RESOLVED:
        yield f"{place}: {json.dumps(numbers)} -> {json.dumps(config)}"


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to dotted names, such as ``optim.lr``."""
    dotted: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            dotted |= flat(value, f"{prefix}{key}.")
        else:
            dotted[f"{prefix}{key}"] = value
    return dotted


def is_trajectory(directory: Path) -> bool:
    """Whether a directory holds one trajectory; HoldfastError for a study of many."""
    if (directory / "study.json").is_file():
        cells = sorted(cell.parent for cell in directory.glob(f"cells/*/{CONFIG_FILE}"))
        first = f", such as {cells[0]}" if cells else ""
        raise HoldfastError(f"{directory}: is a study of many; give one of its trajectories{first}")
    if not is_described(directory):
        return False
    values = read_json(directory / CONFIG_FILE)  # a Hugging Face model also has a config.json
    return isinstance(values, dict) and "numbers" in values


def commit_file(directory: Path) -> Path:
    """The path of a trajectory's last commit."""
    return directory / "state" / "commit.json"


def write_commit(directory: Path, values: Mapping[str, Any]) -> None:
    """Replace the last commit atomically. values: JSON values, stored with their sha256."""
    make_folder(commit_file(directory).parent)
    write_json(commit_file(directory), {**values, "sha256": sha256_of(values)})


def read_commit(directory: Path) -> dict[str, Any]:
    """The values of the last commit; HoldfastError when it is missing or was changed."""
    path = commit_file(directory)
    values = read_json(path)
    if not isinstance(values, dict) or values.pop("sha256", None) != sha256_of(values):
        raise damaged(path, "is no commit as it was written")
    return values


def completed_in(directory: Path) -> int:
    """The number of tasks that a trajectory's last commit holds; 0 before the first commit."""
    return int(read_commit(directory)["completed"]) if commit_file(directory).exists() else 0


def read_matrix(directory: Path) -> RecallMatrix:
    """The recall matrix of a trajectory: from its last commit, else from matrix.csv, else empty.

    ``matrix.csv`` is derived from the commit and may be older or incomplete.
    """
    if commit_file(directory).exists():
        text = read_commit(directory)["matrix"]
        return RecallMatrix.from_csv(text, f"{commit_file(directory)}: matrix")
    path = directory / "matrix.csv"
    return RecallMatrix.load(path) if path.exists() else RecallMatrix()


def damaged(path: Path, reason: str) -> HoldfastError:
    """The error for a trajectory's file that differs from what was committed."""
    return HoldfastError(
        f"{path}: {reason}; this trajectory is damaged: restore the file, or start again in a new "
        "directory"
    )


_OF_A_TASK = ("task", "steps", "replay_samples", "state_bytes", "peak_memory_bytes")


@dataclass(frozen=True)
class RunRecord:
    """The record of one trajectory, finished or not.

    matrix: recall at the last commit, empty before the first boundary; metrics: metrics.json, None
    until it is written.
    """

    path: Path
    description: Description
    matrix: RecallMatrix
    metrics: dict[str, Any] | None

    @classmethod
    def open(cls, path: Path | str) -> RunRecord:
        """Read a directory; HoldfastError if it is no trajectory, or a file in it is damaged."""
        path = Path(path)
        if not is_described(path):
            is_trajectory(path)  # raises for a study
            raise HoldfastError(
                f"{path}: not a trajectory (no config.json); "
                "give a directory that `holdfast run --out` wrote"
            )
        file = path / "metrics.json"
        metrics = read_json(file) if file.exists() else None
        if not isinstance(metrics, dict | None):
            raise HoldfastError(f"{file}: expected a JSON object, found {type(metrics).__name__}")
        return cls(path, Description.read(path), read_matrix(path), metrics)

    @property
    def horizon(self) -> int:
        """The number of tasks learned at the last observed row."""
        return self.matrix.horizon

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of log.jsonl in order; none without a log, HoldfastError if it is damaged."""
        return read_events(self.path)

    def losses(self) -> pd.DataFrame:
        """The unweighted loss terms by task and epoch: ``task``, ``epoch`` and one column a term.

        Raises HoldfastError for a damaged log, as :meth:`tasks` does.
        """
        import pandas as pd

        rows = [
            {"task": event["task"], "epoch": epoch, **terms}
            for event in _tasks(self.path)
            for epoch, terms in enumerate(event["losses"], start=1)
        ]
        return pd.DataFrame(rows, columns=None if rows else ["task", "epoch"])

    def tasks(self) -> pd.DataFrame:
        """What each task cost: ``task``, ``steps``, ``replay_samples``, ``state_bytes``,
        ``peak_memory_bytes``, ``seconds`` in total and ``seconds_<phase>`` of each phase.
        """
        import pandas as pd

        rows = [
            {name: event[name] for name in _OF_A_TASK}
            | {"seconds": math.fsum(event["seconds"].values())}
            | {f"seconds_{phase}": seconds for phase, seconds in event["seconds"].items()}
            for event in _tasks(self.path)
        ]
        return pd.DataFrame(rows, columns=None if rows else [*_OF_A_TASK, "seconds"])


def read_events(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a trajectory's log.jsonl in order; none if there is no log.

    A last line without a newline is skipped: it is still being written, or its writer was stopped.
    Raises HoldfastError for any other line that is no event.
    """
    log = directory / "log.jsonl"
    if not log.exists():
        return
    *lines, _ = read_bytes(log).split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
        except ValueError as error:
            raise HoldfastError(f"{log} line {number}: not JSON ({error})") from error
        if not isinstance(event, dict):
            raise HoldfastError(f"{log} line {number}: an event is a JSON object")
        yield event


def task_seconds(directory: Path, horizon: int) -> list[float]:
    """The seconds of each task up to a horizon, from the log; empty if there is none."""
    events = (event for event in _tasks(directory) if event["task"] <= horizon)
    return [math.fsum(event["seconds"].values()) for event in events]


def _tasks(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield each task's event of the log; HoldfastError for one that lacks a field."""
    for number, event in enumerate(read_events(directory), start=1):
        if event.get("event") == "task":
            losses = event.get("losses")
            whole = (
                all(isinstance(event.get(name), int) for name in _OF_A_TASK)
                and isinstance(seconds := event.get("seconds"), dict)
                and all(isinstance(value, (int, float)) for value in seconds.values())
                and isinstance(losses, list)
                and all(isinstance(terms, dict) for terms in losses)
            )
            if not whole:
                place = f"{directory / 'log.jsonl'} line {number}"
                raise HoldfastError(f"{place}: is no event of a task; restore the file")
            yield event
