"""Read the trajectories, plans and traces of a study; list what is damaged as missing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from holdfast.core.config import as_override, read_format
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.files import read_json
from holdfast.core.mechanisms import name_with_settings
from holdfast.results import METRICS, Description, RecallMatrix, box_emission, summarise
from holdfast.results.record import (
    CONFIG_FILE,
    commit_file,
    flat,
    is_described,
    read_commit,
    read_events,
    read_matrix,
)

_PLAN = ("method", "seed", "horizon", "cell", "error")
_TRACE = ("horizon", "rank", "candidate", "method", "score", "fate", "error")
_NUMBERS = {"horizon": "int64", "rank": "int64", "seed": "int64", "score": "float64"}
_OF_THE_RUN = ("method", "seed", "stream")
# An identity has these outside its sections; users write them in the section ``backbone``.
_OF_THE_BACKBONE = ("precision", "device", "deterministic", "attention", "quantization")
_RESOLVED = ("backbone", "evaluation")  # with "auto" in config.json


@dataclass
class StudyContents:
    """What has been read so far.

    stored: paths of all trajectories found, by directory name; searched: the candidate of each
    search's trajectory, by directory name; named_missing: (dataset, method, seed) that ``missing``
    names already; rows_by_path: by resolved path, a trajectory's row, empty if it cannot be read.
    """

    stored: dict[str, Path] = field(default_factory=dict)
    searched: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    matrices: dict[str, RecallMatrix] = field(default_factory=dict)
    traces: dict[str, pd.DataFrame] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    named_missing: set[tuple[str, str, int]] = field(default_factory=set)
    rows_by_path: dict[Path, dict[str, Any]] = field(default_factory=dict)

    def settings(self, directory: Path) -> Mapping[str, Any]:
        """Note a study's trajectories; return study.json, or what can be told without it."""
        store = directory / "cells"
        if (directory / "store.json").is_file():  # the trajectories lie elsewhere
            try:
                store = directory / str(read_json(directory / "store.json")["store"])
            except (HoldfastError, KeyError, TypeError):
                self.missing.append(f"{directory / 'store.json'}: names no store; give it too")
        for path in [*_children(directory / "cells"), *_children(store)]:
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

    def trajectory(self, path: Path, study: Path, candidate: str | None = None) -> dict[str, Any]:
        """Read one trajectory, once; return its row, empty if it cannot be read.

        candidate: its name in a search. A trajectory of a suite and a search gets a row for each.
        """
        place = path.resolve()
        row = self.rows_by_path.get(place)
        if row is None:
            row = {}
            try:
                row, self.matrices[str(path)] = _read(path, self.missing)
            except HoldfastError as error:
                self.missing.append(str(error))
            self.rows_by_path[place] = row
        elif candidate is None:
            return row
        else:
            row = dict(row)
        if row:
            row |= {"study": str(study), "candidate": candidate or row["method"]}
            row["searched"] = candidate is not None
            self.rows.append(row)
        return row

    def lone(self, path: Path, directory: Path) -> None:
        """Read a trajectory that is in no study; it should learn its whole stream."""
        already_read = path.resolve() in self.rows_by_path
        row = self.trajectory(path, directory)
        if row and not already_read:
            row["planned"] = row["tasks"]

    def suite(self, directory: Path) -> None:
        """Read a suite's trajectories, and name those that cells.csv plans but that are missing."""
        table = self._table(
            directory / "cells.csv", _PLAN, "no cells.csv, so the suite has not finished"
        )
        plan = {} if table is None else {line["cell"]: line for line in table.to_dict("records")}
        # A search may keep its trajectories in the same store.
        cells = [path for path in _children(directory / "cells") if path.name not in self.searched]
        paths = {cell: self.stored[cell] for cell in plan if cell in self.stored}
        paths |= {path.name: path for path in cells}  # rather than a store's
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
                rows[cell] |= {"planned": line["horizon"], "failure": why}
                continue
            method = line.get("candidate", line["method"])
            self.named_missing.add((dataset, method, line["seed"]))
            if cell not in rows:
                name = f"{dataset} {method} seed {line['seed']}"
                self.missing.append(f"{name}: not in {directory / 'cells'}{why}")

    def search(self, directory: Path, settings: Mapping[str, Any]) -> None:
        """Read a search's trace and trajectories, and name what is missing or not finished."""
        names = _candidates(settings)
        paths = {key: self.stored[key] for key in names if key in self.stored}
        rows = [self.trajectory(path, directory, names[key]) for key, path in paths.items()]
        dataset = next((row["dataset"] for row in rows if row), directory.name)
        if len(paths) < len(names):
            self.missing.append(
                f"{directory}: {len(names) - len(paths)} of {len(names)} trajectories of the "
                "search are not there; give the store that holds them too, if there is one"
            )
        trace = self._table(
            directory / "trace.csv", _TRACE, "no trace.csv: the first horizon has not finished"
        )
        if trace is None:
            return
        for row in trace[trace["fate"] == "failed"].to_dict("records"):
            self.missing.append(
                f"{dataset} {row['candidate']}: failed at horizon {row['horizon']} "
                f"({_first_line(row['error'])})"
            )
        last = trace["horizon"].max()
        going = ((trace["horizon"] == last) & (trace["fate"] == "promoted")).sum()
        if going:
            self.missing.append(
                f"{directory}: the search has come to horizon {last}; {going} candidates go on"
            )
        first = self.traces.setdefault(dataset, trace)
        if first is not trace:
            smaller, self.traces[dataset] = sorted((trace, first), key=len)
            self.missing.append(
                f"{directory}: a second search of {dataset}; the one with "
                f"{smaller['candidate'].nunique()} candidates is left out of the traces"
            )

    def _table(self, path: Path, columns: Sequence[str], absent: str) -> pd.DataFrame | None:
        """Read a table that a study wrote; None, after naming it, if it is missing or damaged."""
        if not path.is_file():
            self.missing.append(f"{path.parent}: {absent}")
            return None
        try:
            # A candidate may be called NA; only an empty cell is None.
            table = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=_NUMBERS)
            lacking = [name for name in columns if name not in table]
            if lacking:
                raise ValueError(f"it has no column {lacking[0]}")
        except (OSError, ValueError, OverflowError) as error:
            self.missing.append(
                f"{path}: is no table of a study ({_first_line(error)}); it may be damaged"
            )
            return None
        return table


def places(directory: Path, levels: int) -> Iterator[Path]:
    """Yield this directory if it is a trajectory or a study, else those up to ``levels`` below."""
    if (directory / "study.json").is_file() or is_described(directory):
        yield directory
    elif levels:
        for child in sorted(path for path in directory.glob("[!.]*") if path.is_dir()):
            yield from places(child, levels - 1)


def _candidates(settings: Mapping[str, Any]) -> dict[str, str]:
    """The candidates of a search by their trajectories' directory names; empty for a suite."""
    cells = settings.get("cells") or {}
    return {key: candidate for candidate, keys in cells.items() for key in keys}


def _children(store: Path) -> list[Path]:
    return sorted(path.parent for path in store.glob(f"*/{CONFIG_FILE}"))


def _first_line(text: object) -> str:
    return (str(text).splitlines() or [""])[0]


def _read(path: Path, missing: list[str]) -> tuple[dict[str, Any], RecallMatrix]:
    """A trajectory's row and matrix; a damaged log is named in ``missing``."""
    recorded = Description.read(path)
    config, stream = recorded.config, recorded.stream
    try:
        order_seed = config["stream"].get("order_seed")
        row = {
            "dataset": PurePath(stream["name"]).name,
            "tasks": int(stream["tasks"]),
            "method": str(config["method"]),
            "seed": _whole(config["seed"]),
            "order_seed": None if order_seed is None else _whole(order_seed),
            "fingerprint": stream["fingerprint"],
            "settings": _settings_of(recorded),
            "config": flat(config),
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise HoldfastError(f"{path / CONFIG_FILE}: is no trajectory's configuration") from None
    except OverflowError:
        raise HoldfastError(
            f"{path / CONFIG_FILE}: has a seed of 64 bits or more, which no table holds"
        ) from None
    matrix = read_matrix(path)
    row["learned"] = read_commit(path).get("tasks", []) if commit_file(path).exists() else []
    row |= _numbers(matrix) | {"path": str(path)}
    if matrix.horizon:
        try:
            row["state_bytes"] = _state_bytes(path, matrix)
        except HoldfastError as error:
            missing.append(str(error))
    return row, matrix


def read_at(path: Path, matrix: RecallMatrix) -> dict[str, Any]:
    """The numbers of a trajectory's row at an earlier horizon. matrix: up to that horizon."""
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
    """The state's size after the matrix's last task; NaN if the log does not tell."""
    size = math.nan
    for event in read_events(path):
        if event.get("event") == "task" and event.get("task") == matrix.horizon:
            value = event.get("state_bytes")
            size = float(value) if isinstance(value, int | float) else math.nan
    return size


def _settings_of(recorded: Description) -> dict[str, Any]:
    """The dotted settings that change the results, without method, seed and stream."""
    values = dict(recorded.numbers)
    values |= values.pop("plugins", {})  # each is a section, as users write it
    backbone = {name: values.pop(name) for name in _OF_THE_BACKBONE if name in values}
    if "backbone" in values:  # as a fingerprint alone
        identity = {"name": recorded.backbone["name"], "fingerprint": values["backbone"]}
        values["backbone"] = identity | backbone
    return flat({key: value for key, value in values.items() if key not in _OF_THE_RUN})


def complete_settings(rows: Sequence[Mapping[str, Any]]) -> None:
    """Add to each run's settings those that its identity omits because they have their default.

    A setting is added if a run of the same method has it, or any run has it and this one has other
    settings of its section.
    """
    recording: dict[str, set[str]] = {}
    for row in rows:
        for key in row["settings"]:
            recording.setdefault(key, set()).add(row["method"])
    for row in rows:
        sections = {key.rpartition(".")[0] for key in row["settings"]} - {*_RESOLVED}
        for key, methods in recording.items():
            section = key.rpartition(".")[0]
            its_own = section in sections or row["method"] in methods
            if its_own and section not in _RESOLVED and key in row["config"]:
                row["settings"].setdefault(key, row["config"][key])


def tell_apart(rows: Sequence[dict[str, Any]]) -> None:
    """Add to ``method`` and ``candidate`` the settings in which runs of one method differ.

    So a name is like ``merge optim.lr=0.001``, with every setting in which any two runs of the
    method on the data set differ, or the tag alone. Rows of searches stay as they are.
    """
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in (row for row in rows if not row["searched"]):
        groups.setdefault((row["dataset"], row["order_seed"], row["method"]), []).append(row)
    for group in groups.values():
        differing = _differing([row["settings"] for row in group])
        for row in group:
            settings = {key: row["settings"][key] for key in differing if key in row["settings"]}
            row["method"] = row["candidate"] = name_with_settings(row["method"], settings)


_OF_WEIGHTS = ("backbone.name", "backbone.precision", "backbone.quantization")


def _differing(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings whose values differ; the backbone's fingerprint only if no other tells."""
    keys = []
    for key in dict.fromkeys(key for settings in runs for key in settings):
        values = [settings[key] for settings in runs if key in settings]  # an older run may lack it
        if any(value != values[0] for value in values):
            keys.append(key)
    if "backbone.fingerprint" not in keys:  # the same weights under two names
        return [key for key in keys if key != "backbone.name"]
    names = [key for key in keys if key in _OF_WEIGHTS]
    weights = {(*map(run.get, names), run.get("backbone.fingerprint")) for run in runs}
    if len(weights) == len({values[:-1] for values in weights}):
        keys.remove("backbone.fingerprint")
    return keys


def with_settings(
    rows: Sequence[dict[str, Any]], where: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows that have the settings ``where``, and a line that counts the others, if any.

    A run whose method does not use a setting (``si.strength`` of vanilla) is kept.
    Raises HoldfastError for a setting that no run has, or that leaves no run.
    """
    keys = sorted({key for row in rows for key in row["settings"]})
    for key, value in where.items():
        if key not in keys:
            raise HoldfastError(f"{key}: no run has that setting; {did_you_mean(key, keys)}")
        values = [row["settings"][key] for row in rows if key in row["settings"]]
        if value not in values:
            choices = ", ".join(sorted({as_override(key, other) for other in values}))
            raise HoldfastError(f"{as_override(key, value)}: no run has that, but {choices}")
    matching = [
        row
        for row in rows
        if all(row["settings"].get(key, value) == value for key, value in where.items())
    ]
    omitted = len(rows) - len(matching)
    condition = name_with_settings("", where).strip()
    runs = "1 trajectory" if omitted == 1 else f"{omitted} trajectories"
    return matching, [f"{runs} without {condition}: left out"] if omitted else []
