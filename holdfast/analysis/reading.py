"""What one directory after another adds to a study: its trajectories, plans and traces.

Every file is read on its own: what is damaged is named, and the rest goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from holdfast.analysis.settings import settings_of
from holdfast.core.claims import read_format
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json
from holdfast.results import METRICS, Description, RecallMatrix, box_emission, summarise
from holdfast.results.commit import read_matrix
from holdfast.results.description import CONFIG_FILE, is_described
from holdfast.results.record import read_events

_PLAN = ("method", "seed", "horizon", "cell", "error")
_TRACE = ("horizon", "rank", "candidate", "method", "score", "fate", "error")
_WHOLE = ("horizon", "rank", "seed")
# What both files have, computed by the same formula; versions of numpy may round differently.


@dataclass
class StudyContents:
    """What has been read so far.

    stored: trajectories that lie anywhere below what was given, by name; searched: by name, the
    candidates of searches; planned: by path, the tasks that a trajectory was to learn and why it
    did not; told: (dataset, method, seed) that are named as missing already; taken: rows by path,
    empty for a trajectory that cannot be read.
    """

    stored: dict[str, Path] = field(default_factory=dict)
    searched: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    matrices: dict[str, RecallMatrix] = field(default_factory=dict)
    traces: dict[str, pd.DataFrame] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    planned: dict[str, tuple[int, str]] = field(default_factory=dict)
    told: set[tuple[str, str, int]] = field(default_factory=set)
    taken: dict[Path, dict[str, Any]] = field(default_factory=dict)

    def question(self, directory: Path) -> Mapping[str, Any]:
        """study.json, or what is known without it: a suite's cells say what they are."""
        for path in [*_children(directory / "cells"), *_children(self._store(directory))]:
            self.stored.setdefault(path.name, path)
        try:
            value = read_format(directory / "study.json")
            self.searched |= _candidates(value)
            return dict(value)
        except HoldfastError as error:
            self.missing.append(str(error))
        except (AttributeError, TypeError):
            self.missing.append(f"{directory / 'study.json'}: is no study")
        return {"study": "search"} if (directory / "trace.csv").is_file() else {}

    def _store(self, directory: Path) -> Path:
        """Where a study says that its trajectories lie."""
        told = directory / "store.json"
        if not told.is_file():
            return directory / "cells"
        try:
            return directory / str(read_json(told)["store"])
        except (HoldfastError, KeyError, TypeError):
            self.missing.append(f"{told}: names no store; give it too")
            return directory / "cells"

    def trajectory(self, path: Path, study: Path, candidate: str | None = None) -> dict[str, Any]:
        """Take one trajectory, once; an empty row when it cannot be read.

        candidate: what a search calls it; a search has a row of its own for what a suite has too.
        """
        place = path.resolve()
        row = self.taken.get(place)
        if row is None:
            row = self.taken[place] = self._row(path)
        elif candidate is None or not row:
            return row
        else:
            row = dict(row)
        if row:
            row |= {"study": str(study), "candidate": candidate or row["method"]}
            row["searched"] = candidate is not None
            self.rows.append(row)
        return row

    def _row(self, path: Path) -> dict[str, Any]:
        try:
            row, self.matrices[str(path)] = _read(path, self.missing)
        except HoldfastError as error:
            self.missing.append(str(error))
            return {}
        return row

    def lone(self, path: Path, given: Path) -> None:
        """Take a trajectory that no study has taken: it was to learn its whole stream."""
        known = path.resolve() in self.taken
        row = self.trajectory(path, given)
        if row and not known:
            self.planned[row["path"]] = (row["tasks"], "")

    def suite(self, directory: Path) -> None:
        """Take a suite's cells, and name those that its table plans and that are not there."""
        plan = self._plan(directory)
        # A search may keep its trajectories in the same store.
        own = [path for path in _children(directory / "cells") if path.name not in self.searched]
        paths = {cell: self.stored[cell] for cell in plan if cell in self.stored}
        paths |= {path.name: path for path in own}  # whatever a store has under the same name
        rows = {name: self.trajectory(path, directory) for name, path in paths.items()}
        if plan and not rows:
            self.missing.append(
                f"{directory}: the {len(plan)} trajectories of the suite are not there; give the "
                "store that holds them too"
            )
            return
        dataset = next((row["dataset"] for row in rows.values() if row), directory.name)
        for cell, line in plan.items():
            why = "" if pd.isna(line["error"]) else f"; it failed: {_first_line(line['error'])}"
            if rows.get(cell):
                self.planned[rows[cell]["path"]] = (line["horizon"], why)
                continue
            self.told.add((dataset, line.get("candidate", line["method"]), line["seed"]))
            if cell not in rows:
                name = f"{dataset} {line.get('candidate', line['method'])} seed {line['seed']}"
                self.missing.append(f"{name}: not in {directory / 'cells'}{why}")

    def _plan(self, directory: Path) -> dict[str, dict[str, Any]]:
        """The lines of cells.csv by the names of their trajectories; empty when there is none."""
        path = directory / "cells.csv"
        if not path.is_file():
            self.missing.append(f"{directory}: no cells.csv, so the suite has not finished")
            return {}
        try:
            lines = _table(path, _PLAN).to_dict("records")
        except HoldfastError as error:
            self.missing.append(str(error))
            return {}
        return {line["cell"]: line for line in lines}

    def search(self, directory: Path, question: Mapping[str, Any]) -> None:
        """Take a search's trace and cells, and name what it has not come to."""
        names = _candidates(question)
        paths = {key: self.stored[key] for key in names if key in self.stored}
        rows = [self.trajectory(path, directory, names[key]) for key, path in paths.items()]
        dataset = next((row["dataset"] for row in rows if row), directory.name)
        if len(paths) < len(names):
            self.missing.append(
                f"{directory}: {len(names) - len(paths)} of {len(names)} trajectories of the "
                "search are not there; give the store that holds them too, if there is one"
            )
        path = directory / "trace.csv"
        if not path.is_file():
            self.missing.append(f"{directory}: no trace.csv: the first horizon has not finished")
            return
        try:
            trace = _table(path, _TRACE)
        except HoldfastError as error:
            self.missing.append(str(error))
            return
        self.missing += _left_in_search(directory, dataset, trace)
        kept, other = self.traces.get(dataset), trace
        if kept is not None and len(kept) < len(trace):
            kept, other = trace, kept
        if kept is not None:
            self.missing.append(
                f"{directory}: a second search of {dataset}; the one with "
                f"{other['candidate'].nunique()} candidates is left out of the traces"
            )
        self.traces[dataset] = trace if kept is None else kept


def places(directory: Path, levels: int) -> Iterator[Path]:
    """Trajectories and studies: this directory itself, or what lies in it."""
    if (directory / "study.json").is_file() or is_described(directory):
        yield directory
    elif levels:
        for child in sorted(path for path in directory.glob("[!.]*") if path.is_dir()):
            yield from places(child, levels - 1)


def _candidates(question: Mapping[str, Any]) -> dict[str, str]:
    """The candidates of a search by the names of their trajectories; empty for a suite."""
    cells = question.get("cells") or {}
    return {key: candidate for candidate, keys in cells.items() for key in keys}


def _children(store: Path) -> list[Path]:
    return sorted(path.parent for path in store.glob(f"*/{CONFIG_FILE}"))


def _read(path: Path, missing: list[str]) -> tuple[dict[str, Any], RecallMatrix]:
    """A trajectory's row and matrix; what else is wrong with it goes to ``missing``.

    Raises HoldfastError when its configuration or its matrix cannot be read.
    """
    recorded = Description.read(path)
    config, stream, file = recorded.config, recorded.stream, path / CONFIG_FILE
    try:
        order_seed = config["stream"].get("order_seed")
        row = {
            "dataset": PurePath(stream["name"]).name,
            "tasks": int(stream["tasks"]),
            "method": str(config["method"]),
            "seed": _whole(config["seed"]),
            "order_seed": None if order_seed is None else _whole(order_seed),
            "fingerprint": stream["fingerprint"],
            "settings": settings_of(recorded.numbers, str(recorded.backbone["name"])),
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise HoldfastError(f"{file}: is no trajectory's configuration") from None
    except OverflowError:
        raise HoldfastError(
            f"{file}: has a seed of more than 64 bits, which no table holds"
        ) from None
    matrix = read_matrix(path)
    row |= _numbers(matrix) | {"path": str(path)}
    if matrix.horizon:
        try:
            row["state_bytes"] = _state_bytes(path, matrix)
        except HoldfastError as error:
            missing.append(str(error))
    return row, matrix


def read_at(path: Path, matrix: RecallMatrix) -> dict[str, Any]:
    """The numbers of a trajectory's row as it stood at an earlier horizon.

    matrix: up to there.
    """
    row = _numbers(matrix)
    with suppress(HoldfastError):  # a damaged log has been named already
        row["state_bytes"] = _state_bytes(path, matrix)
    return row


def _numbers(matrix: RecallMatrix) -> dict[str, Any]:
    metrics = summarise(matrix)
    numbers = {name: math.nan if metrics[name] is None else metrics[name] for name in METRICS}
    emission = box_emission(matrix)["final"]
    return {**numbers, "horizon": matrix.horizon, "box_emission": emission, "state_bytes": math.nan}


def _whole(value: Any) -> int:
    return int(np.int64(int(value)))


def _state_bytes(path: Path, matrix: RecallMatrix) -> float:
    """What was on disk after the last task of the matrix; the log may have gone further."""
    size = math.nan
    for event in read_events(path):
        if event.get("event") == "task" and event.get("task") == matrix.horizon:
            told = event.get("state_bytes")
            size = float(told) if isinstance(told, int | float) else math.nan
    return size


def _table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A table that a study wrote; HoldfastError when it is damaged."""
    try:
        # A candidate may be called NA; only an empty cell is None.
        table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as error:
        raise HoldfastError(f"{path}: is no table ({_first_line(error)})") from None
    for name in columns:
        if name not in table:
            raise HoldfastError(f"{path}: has no column {name}; it may be damaged")
        whole = name not in _WHOLE or pd.api.types.is_integer_dtype(table[name])
        if not whole or (name == "score" and not pd.api.types.is_numeric_dtype(table[name])):
            raise HoldfastError(f"{path}: {name} is not a number in every line; it may be damaged")
    return table


def _left_in_search(directory: Path, dataset: str, trace: pd.DataFrame) -> list[str]:
    failed = trace[trace["fate"] == "failed"]
    lines = [
        f"{dataset} {row['candidate']}: failed at horizon {row['horizon']} "
        f"({_first_line(row['error'])})"
        for row in failed.to_dict("records")
    ]
    last = trace["horizon"].max()
    going = ((trace["horizon"] == last) & (trace["fate"] == "promoted")).sum()
    if going:
        lines.append(
            f"{directory}: the search has come to horizon {last}; {going} candidates go on"
        )
    return lines


def _first_line(text: object) -> str:
    return (str(text).splitlines() or [""])[0]
