"""The temporal accuracy matrix: what is recalled of each task after each boundary."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_text_atomically
from holdfast.core.notebook import caption, heat_map

if TYPE_CHECKING:
    import pandas as pd

HEADER = "after_task,on_task,correct,items,accuracy"


class Recall(NamedTuple):
    """One entry of the matrix: how many of a task's items were answered correctly."""

    correct: int
    items: int

    @property
    def accuracy(self) -> float:
        """The share of items recalled, in [0, 1]."""
        return self.correct / self.items


class RecallMatrix:
    """Recall on task j after learning task i, for the pairs that were observed.

    ``matrix[i, j]`` is the accuracy in [0, 1], NaN where nobody looked; tasks count from 1.
    Row i may hold any of the tasks 1..i, and task i + 1, whose accuracy before its turn is
    forward transfer; row 0 is the untouched model. Rows may be missing (a run may
    look at its horizons only). Nothing changes in place: ``with_row`` returns a new matrix.

    Source: eq. matrix.
    """

    __slots__ = ("_rows", "_table")

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, Recall]] = {}
        self._table: NDArray[np.float64] | None = None

    @classmethod
    def _from_rows(cls, rows: dict[int, dict[int, Recall]]) -> RecallMatrix:
        """A matrix around rows that are checked and sorted already."""
        matrix = cls()
        matrix._rows = rows
        return matrix

    def with_row(self, after_task: int, row: Mapping[int, tuple[int, int]]) -> RecallMatrix:
        """Return this matrix with one later row.

        after_task: tasks learned so far, more than in any row already here;
        row: on_task -> (correct, items).
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
        for task, (correct, items) in row.items():
            on_task = operator.index(task)
            recall = Recall(operator.index(correct), operator.index(items))
            complaint = _complaint(after_task, on_task, recall)
            if complaint:
                raise HoldfastError(f"row {after_task}, task {on_task}: {complaint}")
            checked[on_task] = recall
        return self._from_rows({**self._rows, after_task: dict(sorted(checked.items()))})

    def with_recall(self, after_task: int, on_task: int, recall: tuple[int, int]) -> RecallMatrix:
        """Return this matrix with one more entry in its last row, or in a row that follows it.

        recall: (correct, items). Raises HoldfastError for an entry that is impossible, of an
        earlier row, or observed already.
        """
        present = self._rows.get(after_task, {})
        if on_task in present:
            raise HoldfastError(f"row {after_task}, task {on_task} is observed already")
        earlier = self._from_rows({i: row for i, row in self._rows.items() if i != after_task})
        return earlier.with_row(after_task, {**present, on_task: recall})

    def up_to(self, horizon: int) -> RecallMatrix:
        """Return the matrix as it stood after ``horizon`` tasks.

        Raises HoldfastError if that row was never observed: metrics of an earlier row must
        not pass for metrics of this horizon.
        """
        if horizon != 0 and horizon not in self._rows:
            seen = ", ".join(map(str, self._rows)) or "none"
            raise HoldfastError(f"no row after task {horizon} in the matrix; its rows: {seen}")
        return self._from_rows({i: row for i, row in self._rows.items() if i <= horizon})

    @property
    def horizon(self) -> int:
        """The largest observed after_task; 0 for an empty matrix."""
        return max(self._rows, default=0)

    @property
    def observed_rows(self) -> tuple[int, ...]:
        """The after_task of every row with at least one entry, ascending."""
        return tuple(self._rows)

    def recall(self, after_task: int, on_task: int) -> Recall | None:
        """The counts behind one accuracy; None where unobserved.

        Raises HoldfastError for after_task < 0 or on_task < 1.
        """
        if after_task < 0 or on_task < 1:
            raise HoldfastError(
                f"no entry [{after_task}, {on_task}]: rows count from 0 (untouched), tasks from 1"
            )
        return self._rows.get(after_task, {}).get(on_task)

    def entries(self) -> Iterator[tuple[int, int, Recall]]:
        """Yield (after_task, on_task, recall) of every observed entry, row by row."""
        for after_task, row in self._rows.items():
            for on_task, recall in row.items():
                yield after_task, on_task, recall

    def accuracies(self) -> NDArray[np.float64]:
        """Return accuracies [horizon + 1, horizon + 2], indexed [after_task, on_task] from task 1.

        Row 0 is the untouched model, the last column the task that comes next. Column 0 names
        no task and is NaN like everything unobserved; ``[1:, 1:-1]`` is the paper's T x T matrix.
        """
        if self._table is None:
            table = np.full((self.horizon + 1, self.horizon + 2), np.nan)
            for after_task, on_task, recall in self.entries():
                table[after_task, on_task] = recall.accuracy
            self._table = table
        return self._table.copy()

    def to_csv(self) -> str:
        """The text of matrix.csv: a header, then one line an observed entry."""
        lines = [HEADER]
        for after_task, on_task, recall in self.entries():
            lines.append(
                f"{after_task},{on_task},{recall.correct},{recall.items},{recall.accuracy!r}"
            )
        return "\n".join(lines) + "\n"

    @classmethod
    def from_csv(cls, text: str, source: str = "matrix.csv") -> RecallMatrix:
        """The matrix written by ``to_csv``; the order of the lines does not matter.

        source: what to call the text in errors.
        Raises HoldfastError naming the source and the line.
        """
        lines = text.splitlines()
        if not lines or lines[0] != HEADER:
            found = lines[0] if lines else ""
            raise HoldfastError(f'{source} line 1: expected the header "{HEADER}", found "{found}"')
        rows: dict[int, dict[int, Recall]] = {}
        known: dict[str, Recall] = {}
        for number, line in enumerate(lines[1:], start=2):
            try:
                after_task, on_task, recall = _entry(line, known)
                row = rows.setdefault(after_task, {})
                if on_task in row:
                    raise ValueError(f"row {after_task}, task {on_task} appears a second time")
            except ValueError as error:
                raise HoldfastError(f"{source} line {number}: {error}") from None
            row[on_task] = recall
        return cls._from_rows({i: dict(sorted(rows[i].items())) for i in sorted(rows)})

    def save(self, path: Path) -> None:
        """Write matrix.csv in one step: a reader sees the old file or the new one."""
        write_text_atomically(path, self.to_csv())

    @classmethod
    def load(cls, path: Path) -> RecallMatrix:
        """Read what ``save`` wrote.

        Raises HoldfastError for a missing or damaged file.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
        except UnicodeDecodeError as error:
            raise HoldfastError(f"{path}: is not text ({error}); it may be damaged") from error
        return cls.from_csv(text, source=str(path))

    def __getitem__(self, entry: tuple[int, int]) -> float:
        recall = self.recall(*entry)
        return float("nan") if recall is None else recall.accuracy

    # Without this Python would try matrix[0], matrix[1], ... to iterate.
    __iter__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecallMatrix) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(tuple(self.entries()))

    def to_frame(self) -> pd.DataFrame:
        """A line for each observed entry: after_task, on_task, correct, items, accuracy."""
        import pandas as pd

        rows = [(i, j, *recall, recall.accuracy) for i, j, recall in self.entries()]
        return pd.DataFrame(rows, columns=HEADER.split(","))

    def __repr__(self) -> str:
        if not self._rows:
            return "RecallMatrix(empty)"
        row = [recall for task, recall in self._rows[self.horizon].items() if task <= self.horizon]
        share = sum(recall.accuracy for recall in row) / len(row) if row else float("nan")
        return f"RecallMatrix({self.horizon} tasks, {len(row)} asked last: {share:.1%} recalled)"

    def _repr_html_(self) -> str:
        """A picture for notebooks: a line a row after_task, a column a task."""
        table = self.accuracies()[:, 1:]
        shares = [[None if np.isnan(one) else float(one) for one in row] for row in table]
        told = "after each task (down), recall of each task (across)"
        return caption(repr(self)) + heat_map(shares) + caption(told)


def _complaint(after_task: int, on_task: int, recall: Recall) -> str | None:
    """Why this cannot be an entry of any matrix; None when it can."""
    if after_task < 0:
        return f"after_task is {after_task}; it counts learned tasks, from 0"
    if not 1 <= on_task <= after_task + 1:
        return f"after {after_task} tasks only tasks 1 to {after_task + 1} can be asked"
    if recall.items < 1:
        return f"{recall.items} items; accuracy needs at least one"
    if not 0 <= recall.correct <= recall.items:
        return f"{recall.correct} correct of {recall.items} items"
    return None


def _entry(line: str, known: dict[str, Recall]) -> tuple[int, int, Recall]:
    """As :func:`_parse_entry`, faster where the counts and the accuracy were read before.

    known: what was read, by the text of the last three values; thousands of lines share few.
    """
    after, _, rest = line.partition(",")
    on, _, counts = rest.partition(",")
    recall = known.get(counts)
    if recall and line.isascii() and after.isdigit() and on.isdigit():
        after_task, on_task = int(after), int(on)
        if 1 <= on_task <= after_task + 1:
            return after_task, on_task, recall
    after_task, on_task, known[counts] = _parse_entry(line)
    return after_task, on_task, known[counts]


def _parse_entry(line: str) -> tuple[int, int, Recall]:
    """One line of matrix.csv; raises ValueError saying what is wrong with it."""
    fields = line.split(",")
    if len(fields) != 5:
        raise ValueError(f'expected 5 values ({HEADER}), found {len(fields)} in "{line}"')
    counts = []
    for name, field in zip(HEADER.split(","), fields[:4], strict=False):
        # int() alone would also take "1_0", " 1" and "+1".
        if not (field.isascii() and field.isdigit()):
            raise ValueError(f'{name} is "{field}", not a whole number')
        counts.append(int(field))
    after_task, on_task, recall = counts[0], counts[1], Recall(counts[2], counts[3])
    complaint = _complaint(after_task, on_task, recall)
    if complaint:
        raise ValueError(complaint)
    # Exact: ``to_csv`` writes the shortest text that reads back as the same float.
    if _float_or_none(fields[4]) != recall.accuracy:
        raise ValueError(
            f'accuracy is "{fields[4]}", but {recall.correct} of {recall.items} '
            f"is {recall.accuracy!r}"
        )
    return after_task, on_task, recall


def _float_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
