"""What a finished trajectory says at the end, as one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from holdfast.results import RunRecord

if TYPE_CHECKING:
    from holdfast.learning.trajectory import Trajectory

_COLUMNS = {
    "Final": "final",
    "Diag": "diag",
    "Forget": "forget",
    "W(10)": "w10",
    "transfer": "forward_transfer",
    "half-life": "half_life",
}


def print_summary(trajectories: Mapping[str, Trajectory]) -> None:
    """Print a row for each trajectory, by its label, and where it is kept."""
    table = Table(box=None, pad_edge=False)
    table.add_column("method")
    for heading in ("tasks", *_COLUMNS, "seconds"):
        table.add_column(heading, justify="right")
    for label, trajectory in trajectories.items():
        metrics = trajectory.metrics()
        cells = [_shown(metrics[key]) for key in _COLUMNS.values()]
        table.add_row(label, str(trajectory.horizon), *cells, f"{_seconds(trajectory):.0f}")
    Console().print(table)
    for trajectory in trajectories.values():
        print(trajectory.directory)


def _seconds(trajectory: Trajectory) -> float:
    events = RunRecord.open(trajectory.directory).events()
    return sum(sum(event["seconds"].values()) for event in events)


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
