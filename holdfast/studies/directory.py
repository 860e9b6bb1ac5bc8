"""What a search and a suite share: the study's directory, its cells and its tables."""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.core.config import FORMAT, check_same, read_format
from holdfast.core.errors import HoldfastError
from holdfast.core.files import lock_directory, write_json, write_text_atomically
from holdfast.learning.trajectory import Trajectory
from holdfast.results import RecallMatrix
from holdfast.results.record import Description, completed_in
from holdfast.streams import Stream
from holdfast.studies.executor import Cell, Executor, Outcome, Watch, run_cells


@contextmanager
def lock_study(directory: Path, settings: Mapping[str, Any], store: Path) -> Iterator[None]:
    """Lock a directory for a study during the block; ``study.json`` records its settings.

    store: the directory of the trajectories; ``store.json`` has its path, unless it is ``cells``.
    Raises HoldfastError, having changed nothing, when the directory holds another study or other
    files, or another process holds it.
    """
    path = directory / "study.json"
    if path.exists():
        recorded = read_format(path)
        if not isinstance(recorded, dict) or "study" not in recorded:
            raise HoldfastError(f"{path}: is no study's; restore it, or choose another directory")
        if recorded["study"] != settings["study"]:
            raise HoldfastError(
                f"{directory}: holds a {recorded['study']}, and this is a {settings['study']}; "
                "choose another directory"
            )
        check_same(directory, "a study", recorded, settings)
    elif directory.exists():
        names = sorted(os.listdir(directory)) if directory.is_dir() else ["a file"]
        foreign = [name for name in names if not name.startswith(".")]
        if foreign:
            raise HoldfastError(
                f"{directory}: holds {foreign[0]} but no study (study.json); choose an empty or a "
                "new directory"
            )
    with lock_directory(directory, parts=("study.json", "store.json", "cells")):
        if not path.exists():
            write_json(path, {"format": FORMAT, **settings})
        store.parent.mkdir(parents=True, exist_ok=True)  # only here: if moved, not made again
        elsewhere = directory / "store.json"
        if store.resolve() != (directory / "cells").resolve():
            write_json(elsewhere, {"store": os.path.relpath(store, directory)})
        else:
            elsewhere.unlink(missing_ok=True)
        yield


def advance(
    cells: Sequence[Cell],
    stream: Stream,
    store: Path,
    executor: Executor,
    watch: Watch,
    since: int = 0,
) -> Iterator[Outcome]:
    """Yield the outcome of every cell, beginning with those that have reached their horizon.

    stream: of all the cells; since: the horizon to which they were advanced before. A cell whose
    files are damaged has failed. Raises HoldfastError, before anything is learned, when a directory
    of the store holds a trajectory with other settings or other tasks than its cell.
    """
    opened = [_opened(cell, stream, store) for cell in cells]
    waiting, ended, missing = [], [], 0
    for cell, trajectory in zip(cells, opened, strict=True):
        if isinstance(trajectory, str):
            ended.append(Outcome(cell, trajectory))
        elif trajectory.horizon < cell.horizon:
            waiting.append(cell)
            missing += cell.horizon - trajectory.horizon
        else:
            trajectory.advance(cell.horizon)  # writes tables that a killed process left out
            ended.append(Outcome(cell))
    watch.begins(len(cells), sum(cell.horizon - since for cell in cells), missing)
    learned = run_cells(waiting, store, executor, watch) if waiting else ()
    for outcome in itertools.chain(ended, learned):
        watch.finished(outcome)
        yield outcome


def _opened(cell: Cell, stream: Stream, store: Path) -> Trajectory | str:
    """A cell's trajectory, or why it cannot be read."""
    place = cell.directory(store)
    try:
        return Trajectory(cell.config, place, stream=stream)
    except HoldfastError as error:
        try:
            Description.read(place)
            completed_in(place)
        except HoldfastError:
            return f"{error}; or remove {place}, and the cell is learned anew"
        raise


def measured(
    outcome: Outcome, stream: Stream, store: Path
) -> tuple[RecallMatrix | None, str | None]:
    """A cell's recall matrix up to its horizon, or why there is none."""
    if outcome.error is not None:
        return None, outcome.error
    cell, place = outcome.cell, outcome.cell.directory(store)
    matrix = Trajectory(cell.config, place, stream=stream).matrix
    # A run that went on may have asked nothing there, or the last task alone.
    entries = [matrix.entry(cell.horizon, task) for task in range(1, cell.horizon + 1)]
    if None in entries:
        return None, (
            f"{place}: recall was not measured after task {cell.horizon}; ask for another horizon, "
            "or learn it elsewhere with evaluation.rows=every"
        )
    return matrix.up_to(cell.horizon), None


def write_table(directory: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as ``name.csv`` and ``name.json``; None is an empty cell."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text_atomically(directory / f"{name}.csv", text.getvalue())
    write_json(directory / f"{name}.json", list(rows))
