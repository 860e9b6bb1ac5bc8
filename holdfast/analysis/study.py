"""Read a study: every trajectory below some directories, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from holdfast.analysis.reading import (
    StudyContents,
    complete_settings,
    places,
    read_at,
    tell_apart,
    with_settings,
)
from holdfast.core.config import given_settings
from holdfast.core.errors import HoldfastError
from holdfast.results import METRICS, RecallMatrix

_TYPES = (
    dict.fromkeys(("study", "dataset", "method", "candidate"), "object")
    | {"seed": "int64", "order_seed": "Int64", "horizon": "int64"}
    | dict.fromkeys((*METRICS, "box_emission", "state_bytes"), "float64")
    | {"searched": "bool", "path": "object"}
)
_LEVELS = 2  # of folders in which trajectories and studies are sought


@dataclass(frozen=True)
class Study:
    """The trajectories and searches in some directories.

    cells: one row per trajectory (two if a suite and a search share it): ``study`` (its
    directory), ``dataset``, ``method`` (tag, with the settings in which its runs differ, if any),
    ``candidate`` (in a search the tag with its searched settings, otherwise the method), ``seed``,
    ``order_seed`` (<NA> for the stored order), ``horizon`` (tasks learned; runs are cut at the
    longest horizon that at least half of their data set's runs have reached), the metrics as
    shares, ``half_life`` in tasks (NaN if not defined), ``box_emission`` (share, in the last row),
    ``state_bytes`` (on disk), ``searched`` (whether it is a search's row), ``path``.
    matrices: by ``path``, up to the horizon in ``cells``. traces: of searches, by dataset, as in
    ``trace.csv``.
    missing: a line for all that is missing, unfinished, left out, cut or not comparable.
    """

    cells: pd.DataFrame
    matrices: Mapping[str, RecallMatrix]
    traces: Mapping[str, pd.DataFrame]
    missing: tuple[str, ...]


def read_study(*directories: Path | str, where: Mapping[str, Any] | None = None) -> Study:
    """Read trajectories, suites and searches, finished or not.

    directories: each a trajectory, a suite or a search, a store of trajectories, or a folder that
    holds some of these, two levels deep at most. Where the store of a study has moved, give
    that store too. where: dotted settings, such as ``{"optim.lr": 0.001}``; only runs that have
    them are read, and runs of methods that do not use them.
    Raises HoldfastError when there is no trajectory and no search at all, and for a setting that no
    run has.
    """
    reading = StudyContents()
    studies, loose = _collect(tuple(map(Path, directories)), reading)
    for path, settings in studies.items():
        if settings.get("study") != "search":
            reading.suite(path)
    for path, settings in studies.items():
        if settings.get("study") == "search":
            reading.search(path, settings)
    for path, directory in loose:
        # Two stores may hold the same candidate, of which a search has one.
        if path.name not in reading.searched:
            reading.lone(path, directory)
    if not reading.rows and not reading.traces:
        why = reading.missing[0] if reading.missing else "no directory to read"
        raise HoldfastError(
            f"{why}; give a directory that `holdfast run`, `suite` or `search` wrote"
        )
    complete_settings(reading.rows)
    if where:
        reading.rows, left_out = with_settings(reading.rows, given_settings(where))
        reading.missing += left_out
    tell_apart(reading.rows)
    cells = pd.DataFrame(reading.rows, columns=list(_TYPES)).astype(_TYPES)
    missing = [*reading.missing, *_unfinished(cells, reading.rows)]
    missing += [*_holes(cells, reading.named_missing), *_unlike(reading.rows)]
    missing += _orders(reading.rows)
    cells, matrices, lines = aligned(cells, reading.matrices)
    return Study(cells, matrices, reading.traces, (*missing, *lines))


def final_runs(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells that tables use: those at the common horizon, each method and seed once.

    These are the cells of suites and single runs, not of searches. If a data set has cells in the
    stored order of tasks, its cells in other orders are left out.
    Raises HoldfastError for a method and seed that occur twice.
    """
    runs = at_horizon(cells)
    refuse_repeated(runs)
    return runs


def refuse_repeated(cells: pd.DataFrame) -> None:
    """Raise HoldfastError, with the paths, for a data set, method and seed that occur twice."""
    keys = ["dataset", "method", "seed"]
    again = cells[cells.duplicated(keys)]
    if again.empty:
        return
    run = again.iloc[0]
    same = cells[(cells[keys] == run[keys]).all(axis="columns")]
    places = f", in {' and '.join(same['path'][:2])}" if "path" in same else ""
    raise HoldfastError(
        f"{run['dataset']}: {run['method']} with seed {run['seed']} is there twice{places}; leave "
        "one of them out"
    )


def _collect(
    directories: tuple[Path, ...], reading: StudyContents
) -> tuple[dict[Path, Mapping[str, Any]], list[tuple[Path, Path]]]:
    """The studies with their study.json, and the other trajectories with the directory given."""
    studies: dict[Path, Mapping[str, Any]] = {}
    loose: list[tuple[Path, Path]] = []
    seen: set[Path] = set()
    for directory in directories:
        try:
            paths = list(places(directory, _LEVELS))
        except OSError as error:
            reading.missing.append(f"{directory}: cannot be read ({error.strerror})")
            continue
        if not paths:
            reading.missing.append(f"{directory}: no trajectory there")
        for path in paths:
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            if (path / "study.json").is_file():
                studies[path] = reading.settings(path)
            else:
                loose.append((path, directory))
                reading.stored.setdefault(path.name, path)
    return studies, loose


def _unfinished(cells: pd.DataFrame, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    common = in_report_order(cells).groupby("dataset")["horizon"].agg(common_horizon)
    for row in (row for row in rows if not row["searched"]):
        tasks = row.get("planned", 0)
        if row["order_seed"] is None:
            tasks = max(tasks, common[row["dataset"]])
        if row["horizon"] < tasks:
            name = f"{row['dataset']} {row['method']} seed {row['seed']}"
            learned = f"{row['horizon']} of {tasks} tasks learned ({row['path']})"
            yield f"{name}: {learned}{row.get('failure', '')}"


def _holes(cells: pd.DataFrame, named_missing: set[tuple[str, str, int]]) -> Iterator[str]:
    """Yield a line on the seeds that a method lacks and another of its data set has."""
    for dataset, part in in_report_order(cells).groupby("dataset", sort=False):
        seeds = sorted(part["seed"].unique())
        for method, runs in part.groupby("method", sort=False):
            lacking = [
                seed
                for seed in seeds
                if seed not in set(runs["seed"]) and (dataset, method, seed) not in named_missing
            ]
            if lacking:
                numbers = ", ".join(map(str, lacking))
                yield f"{dataset} {method}: no trajectory with seed {numbers}, which others have"


def _unlike(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each run that learned another stream than the run it is compared with."""
    streams: dict[Any, Mapping[str, Any]] = {}
    for row in (row for row in rows if not row["searched"]):
        first = streams.setdefault((row["dataset"], row["order_seed"]), row)
        if row["tasks"] == first["tasks"]:
            same = row["fingerprint"] == first["fingerprint"]
        else:  # in the tasks that both have learned
            both = zip(row["learned"], first["learned"], strict=False)
            same = all(task == other for task, other in both)
        if not same:
            yield (
                f"{row['dataset']}: {row['path']} and {first['path']} have learned two streams of "
                "that name; their numbers do not compare"
            )


def _orders(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each data set whose runs learned its tasks in several orders."""
    runs: dict[str, Counter[int | None]] = {}
    for row in (row for row in rows if not row["searched"]):
        runs.setdefault(row["dataset"], Counter())[row["order_seed"]] += 1
    for dataset, orders in runs.items():
        seeds = sorted(seed for seed in orders if seed is not None)
        names = ", ".join(f"stream.order_seed={seed}" for seed in seeds)
        if None in orders and seeds:
            count = orders.total() - orders[None]
            number = "1 trajectory" if count == 1 else f"{count} trajectories"
            yield f"{dataset}: {number} with {names}: left out, as others have the stored order"
        elif len(seeds) > 1:
            yield (
                f"{dataset}: the runs have learned its tasks in several orders ({names}); their "
                "numbers do not compare, so give those of one order alone"
            )


_NAMED = 3  # runs that a line names before it counts the others


def common_horizon(horizons: pd.Series) -> int:
    """The longest horizon that at least half of the runs that have learned something have reached.

    So neither a run that failed early nor one that went further decides for all the others.
    """
    begun = horizons[horizons > 0].sort_values()
    return int(begun.iloc[len(begun) // 2]) if len(begun) else 0


def in_report_order(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of :func:`final_runs`, but at any horizon, and as often as they occur."""
    # Cells that were not read from directories, such as the paper's, may lack the column.
    chosen = cells[~cells["searched"]] if "searched" in cells else cells
    stored = chosen["order_seed"].isna()
    return chosen[stored | ~stored.groupby(chosen["dataset"]).transform("any")]


def at_horizon(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of :func:`in_report_order` that are at their data set's :func:`common_horizon`."""
    chosen = in_report_order(cells)
    if chosen.empty:
        return chosen
    horizons = chosen.groupby("dataset")["horizon"].transform(common_horizon)
    return chosen[chosen["horizon"] == horizons]


def aligned(
    cells: pd.DataFrame, matrices: Mapping[str, RecallMatrix]
) -> tuple[pd.DataFrame, dict[str, RecallMatrix], list[str]]:
    """Cut every run that went further than its data set's horizon back to that horizon.

    Returns changed copies of both, and lines that name the runs. The rows of searches stay as they
    are; so does a run that was not evaluated on all tasks there, which a line names too.
    """
    cells, matrices, lines = cells.copy(), dict(matrices), []
    for dataset, part in in_report_order(cells).groupby("dataset", sort=False):
        horizon = common_horizon(part["horizon"])
        read, left_out = [], []
        for place, run in part[part["horizon"] > horizon].iterrows():
            name = f"{run['method']} seed {run['seed']} ({run['horizon']} tasks)"
            # It may have asked nothing there, or the last task alone.
            asked = (matrices[run["path"]].entry(horizon, task) for task in range(1, horizon + 1))
            if None in asked:
                left_out.append(name)
                continue
            read.append(name)
            matrix = matrices[run["path"]] = matrices[run["path"]].up_to(horizon)
            for column, value in read_at(Path(run["path"]), matrix).items():
                cells.at[place, column] = value
        if read:
            lines.append(
                f"{dataset}: read after {horizon} tasks, as far as at least half of its runs have "
                f"come; read there too, though further on: {_first_names(read)}"
            )
        if left_out:
            lines.append(
                f"{dataset}: left out, as they were not evaluated after {horizon} tasks like the "
                f"others: {_first_names(left_out)}"
            )
    return cells, matrices, lines


def _first_names(runs: list[str]) -> str:
    more = len(runs) - _NAMED
    return ", ".join(runs[:_NAMED]) + (f" and {more} more" if more > 0 else "")
