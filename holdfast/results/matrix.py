"""The temporal accuracy matrix: the recall of each task after each learned task."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_bytes, write_text_atomically
from holdfast.core.notebook import caption, heat_map

if TYPE_CHECKING:
    import pandas as pd

HEADER = "after_task,on_task,correct,items,boxed,accuracy"


class Entry(NamedTuple):
    """How many of a task's items were answered correctly.

    boxed: how many answers open a box; None if they were not counted.
    """

    correct: int
    items: int
    boxed: int | None = None

    @property
    def accuracy(self) -> float:
        """The share of items recalled, in [0, 1]."""
        return self.correct / self.items


class RecallMatrix:
    """Recall on task j after learning task i, for the pairs that were observed.

    ``matrix[i, j]`` is the accuracy in [0, 1], NaN if not observed; tasks count from 1.
    Row i may hold any of the tasks 1..i, and task i + 1, whose accuracy before it is learned is
    forward transfer; row 0 is the unmodified model. Rows may be missing (a run may evaluate at its
    horizons only). Immutable: ``with_row`` returns a new matrix.

    Source: eq. matrix.
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, Entry]] = {}

    @classmethod
    def _from_rows(cls, rows: dict[int, dict[int, Entry]]) -> RecallMatrix:
        """Wrap rows that are already checked and sorted."""
        matrix = cls()
        matrix._rows = rows
        return matrix

    def with_row(self, after_task: int, row: Mapping[int, Entry | tuple[int, int]]) -> RecallMatrix:
        """Return a copy with one later row. row: on_task -> (correct, items), or an :class:`Entry`.

        Raises HoldfastError for a row out of order, an empty one, or an impossible entry.
        """
        after_task = operator.index(after_task)
        if self._rows and after_task <= max(self._rows):
            raise HoldfastError(
                f"row {after_task} cannot follow row {max(self._rows)}: "
                "rows are appended in the order of learning, each once"
            )
        if not row:
            raise HoldfastError(f"row {after_task} is empty: give at least one task's recall")
        checked = {}
        for task, counts in row.items():
            on_task = operator.index(task)
            # As plain integers; TypeError for fractions.
            entry = Entry(*(operator.index(count) for count in counts if count is not None))
            complaint = _complaint(after_task, on_task, entry)
            if complaint:
                raise HoldfastError(f"row {after_task}, task {on_task}: {complaint}")
            checked[on_task] = entry
        return self._from_rows({**self._rows, after_task: dict(sorted(checked.items()))})

    def with_entry(
        self, after_task: int, on_task: int, entry: Entry | tuple[int, int]
    ) -> RecallMatrix:
        """Return a copy with one more entry, in its last row or in a new row after it.

        Raises HoldfastError for an entry that is impossible, already observed or of an earlier row.
        """
        present = self._rows.get(after_task, {})
        if on_task in present:
            raise HoldfastError(f"row {after_task}, task {on_task} is observed already")
        earlier = self._from_rows({i: row for i, row in self._rows.items() if i != after_task})
        return earlier.with_row(after_task, {**present, on_task: entry})

    def up_to(self, horizon: int) -> RecallMatrix:
        """The matrix as it was after ``horizon`` tasks; HoldfastError if that row was not observed.

        Metrics of an earlier row must not be taken for metrics of this horizon.
        """
        if horizon != 0 and horizon not in self._rows:
            rows = ", ".join(map(str, self._rows)) or "none"
            raise HoldfastError(f"no row after task {horizon} in the matrix; its rows: {rows}")
        return self._from_rows({i: row for i, row in self._rows.items() if i <= horizon})

    @property
    def horizon(self) -> int:
        """The largest observed after_task; 0 for an empty matrix."""
        return max(self._rows, default=0)

    @property
    def observed_rows(self) -> tuple[int, ...]:
        """The after_task of every row with at least one entry, ascending."""
        return tuple(self._rows)

    def entry(self, after_task: int, on_task: int) -> Entry | None:
        """The counts of one accuracy; None if unobserved, HoldfastError if it cannot exist."""
        if after_task < 0 or on_task < 1:
            raise HoldfastError(
                f"no entry [{after_task}, {on_task}]: rows count from 0 (untouched), tasks from 1"
            )
        return self._rows.get(after_task, {}).get(on_task)

    def entries(self) -> Iterator[tuple[int, int, Entry]]:
        """Yield (after_task, on_task, entry) for every observed entry, row by row."""
        for after_task, row in self._rows.items():
            for on_task, entry in row.items():
                yield after_task, on_task, entry

    def accuracies(self) -> NDArray[np.float64]:
        """Return accuracies [horizon + 1, horizon + 2], indexed [after_task, on_task] from task 1.

        Row 0 is the unmodified model, the last column the next task. Column 0 belongs to no task
        and is NaN, like every unobserved entry.
        """
        return self._table.copy()

    @functools.cached_property
    def _table(self) -> NDArray[np.float64]:
        table = np.full((self.horizon + 1, self.horizon + 2), np.nan)
        for after_task, on_task, entry in self.entries():
            table[after_task, on_task] = entry.accuracy
        return table

    def learned(self) -> NDArray[np.float64]:
        """Return the paper's T x T matrix: without row 0 and the next task's column."""
        return self.accuracies()[1:, 1:-1]

    def to_csv(self) -> str:
        """The text of matrix.csv: a header, then one line per observed entry."""
        lines = [HEADER]
        for after_task, on_task, entry in self.entries():
            boxed = "" if entry.boxed is None else entry.boxed
            counts = f"{entry.correct},{entry.items},{boxed},{entry.accuracy!r}"
            lines.append(f"{after_task},{on_task},{counts}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_csv(cls, text: str, source: str = "matrix.csv") -> RecallMatrix:
        """Parse what ``to_csv`` wrote, with its lines in any order.

        Raises HoldfastError naming the source and the line.
        """
        lines = text.splitlines()
        if not lines or lines[0] != HEADER:
            first = lines[0] if lines else ""
            raise HoldfastError(f'{source} line 1: expected the header "{HEADER}", found "{first}"')
        rows: dict[int, dict[int, Entry]] = {}
        entry_of = functools.cache(_entry)  # many lines have the same counts
        for number, line in enumerate(lines[1:], start=2):
            try:
                fields = line.split(",", 2)
                if len(fields) < 3:
                    raise ValueError(f'expected 6 values ({HEADER}), found "{line}"')
                after_task, on_task = _whole("after_task", fields[0]), _whole("on_task", fields[1])
                entry, row = entry_of(fields[2]), rows.setdefault(after_task, {})
                complaint = _complaint(after_task, on_task, entry)
                if on_task in row:
                    complaint = f"row {after_task}, task {on_task} appears a second time"
                if complaint:
                    raise ValueError(complaint)
            except ValueError as error:
                raise HoldfastError(f"{source} line {number}: {error}") from None
            row[on_task] = entry
        return cls._from_rows({i: dict(sorted(rows[i].items())) for i in sorted(rows)})

    def save(self, path: Path | str) -> None:
        """Write matrix.csv atomically."""
        write_text_atomically(Path(path), self.to_csv())

    @classmethod
    def load(cls, path: Path | str) -> RecallMatrix:
        """Read what ``save`` wrote; HoldfastError for a missing or damaged file."""
        try:
            text = read_bytes(Path(path)).decode("utf-8-sig")  # spreadsheets write a BOM
        except UnicodeDecodeError as error:
            raise HoldfastError(f"{path}: is not text ({error}); it may be damaged") from error
        return cls.from_csv(text, source=str(path))

    def __getitem__(self, entry: tuple[int, int]) -> float:
        try:
            after_task, on_task = entry
        except (TypeError, ValueError):
            raise HoldfastError(
                f"[{entry}] is no entry; write matrix[after_task, on_task], or accuracies() for all"
            ) from None
        observed = self.entry(after_task, on_task)
        return math.nan if observed is None else observed.accuracy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecallMatrix) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(tuple(self.entries()))

    def to_frame(self) -> pd.DataFrame:
        """A data frame with one row per observed entry and the columns of matrix.csv."""
        import pandas as pd

        rows = [(i, j, *entry, entry.accuracy) for i, j, entry in self.entries()]
        return pd.DataFrame(rows, columns=HEADER.split(","))

    def __repr__(self) -> str:
        if not self._rows:
            return "RecallMatrix(empty)"
        row = [entry for task, entry in self._rows[self.horizon].items() if task <= self.horizon]
        share = sum(entry.accuracy for entry in row) / len(row) if row else math.nan
        return f"RecallMatrix({self.horizon} tasks, {len(row)} asked last: {share:.1%} recalled)"

    def _repr_html_(self) -> str:
        """A heat map for notebooks: one line per after_task, one column per task, T x T."""
        if not self.horizon:
            return caption(repr(self))
        legend = "after each task (down), recall of each task (across): white none, dark all"
        return caption(repr(self)) + heat_map(self.learned().tolist()) + caption(legend)


def _complaint(after_task: int, on_task: int, entry: Entry) -> str | None:
    """Why an entry is invalid; None if it is valid."""
    if after_task < 0:
        return f"after_task is {after_task}; it counts learned tasks, from 0"
    if not 1 <= on_task <= after_task + 1:
        return f"after {after_task} tasks only tasks 1 to {after_task + 1} can be asked"
    if entry.items < 1:
        return f"{entry.items} items; accuracy needs at least one"
    if not 0 <= entry.correct <= entry.items:
        return f"{entry.correct} correct of {entry.items} items"
    if entry.boxed is not None and not entry.correct <= entry.boxed <= entry.items:
        return f"a box in {entry.boxed} of {entry.items} answers, {entry.correct} of them correct"
    return None


def _entry(counts: str) -> Entry:
    """Parse the last four values of a line of matrix.csv; raise ValueError if one is wrong."""
    fields = counts.split(",")
    if len(fields) != 4:
        raise ValueError(f'expected 6 values ({HEADER}), of which the last four are "{counts}"')
    correct, items, boxed, accuracy = fields
    counted = _whole("boxed", boxed) if boxed else None
    entry = Entry(_whole("correct", correct), _whole("items", items), counted)
    # Exact: ``to_csv`` writes the shortest text that reads back as the same float.
    if entry.items and float(accuracy) != entry.accuracy:
        raise ValueError(
            f'accuracy is "{accuracy}", but {entry.correct} of {entry.items} is {entry.accuracy!r}'
        )
    return entry


def _whole(name: str, text: str) -> int:
    # int() alone would also take "1_0", " 1" and "+1".
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f'{name} is "{text}", not a whole number')
    return int(text)
