"""The summary printed at the end: a table of metrics, and matrices as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from holdfast.cli.printing import SafeConsole
from holdfast.results import RecallMatrix, summarise
from holdfast.results.record import task_seconds

_COLUMNS = {
    "Final": "final",
    "Diag": "diag",
    "Forget": "forget",
    "W(10)": "w10",
    "transfer": "forward_transfer",
}
_WIDEST = 18  # tasks whose matrix fits the 80 columns of a terminal


@dataclass(frozen=True)
class LearnedRun:
    """A recall matrix and its trajectory's directory."""

    matrix: RecallMatrix
    directory: Path


def print_summary(learned: Mapping[str, LearnedRun]) -> None:
    """Print a row of metrics for each labelled run."""
    # The longest tag of the paper just fits 80 columns; a longer one is folded, never cut.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold")
    for heading in ("tasks", *_COLUMNS, "half-life", "seconds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, one in learned.items():
        metrics = summarise(one.matrix)
        cells = [_shown(metrics[key]) for key in _COLUMNS.values()]
        table.add_row(
            Text(label),
            str(one.matrix.horizon),
            *cells,
            half_life_words(metrics),
            f"{_seconds(one):.0f}",
        )
    SafeConsole(highlight=False).print(table)


def matrix_text(matrix: RecallMatrix) -> str:
    """The matrix in per cent, one line per row; a note where it is too wide for a terminal."""
    tasks = matrix.horizon
    if tasks > _WIDEST:
        return f"  {tasks} tasks are too many for a terminal; see the figure"
    lines = ["  after task" + "".join(f"{task:4}" for task in range(1, tasks + 1)) + "  on task"]
    for after_task in range(1, tasks + 1):
        row = (matrix[after_task, on_task] for on_task in range(1, after_task + 1))
        cells = "".join("   -" if math.isnan(share) else f"{100 * share:4.0f}" for share in row)
        lines.append(f"{after_task:12}{cells}")
    return "\n".join(lines)


def half_life_words(metrics: Mapping[str, Any]) -> str:
    """The half-life; ``>9`` when R(a) stays above half of R(0) at every age."""
    if metrics["half_life"] is not None:
        return str(metrics["half_life"])
    retention = metrics["retention_by_age"]
    if not retention or None in retention or retention[0] == 0:
        return "-"
    return f">{len(retention) - 1}"


def _seconds(learned: LearnedRun) -> float:
    """Seconds of learning, without interruptions and repeated calls."""
    return sum(task_seconds(learned.directory, learned.matrix.horizon))


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}"
