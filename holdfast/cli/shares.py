"""`holdfast shares`: how much of a task's change the approximations of the past see."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from holdfast.cli.printing import json_line, print_table
from holdfast.cli.progress import WorkBars, loading


def shares(
    directory: Annotated[Path, Argument(metavar="RUN", help="What `holdfast run` wrote.")],
    items: Annotated[int, Option(min=1, help="Earlier items that are asked, drawn.")] = 256,
    as_json: Annotated[bool, Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Learn a run's next task in memory; show the share of its change that each approximation sees.

    Nothing is written. It takes as long as the task, and with a real model some minutes more.
    """
    with loading():
        from holdfast.learning.recorded import Recorded
        from holdfast.learning.shares import shares as measure

    recorded = Recorded.read(directory)
    with WorkBars() as report:
        rows = measure(recorded, items, report)
    if as_json:
        print(json_line([{"what": row.what, **row.values} for row in rows]))
        return
    columns, whole = list(rows[0].values), rows[0].values
    print(f"tau^2 KL per token of what task {recorded.last.completed + 1} changes, and its shares")
    table = [[rows[0].what, *(f"{whole[column]:.3g}" for column in columns)]]
    for row in rows[1:]:
        cells = (
            f"{row.values[column] / whole[column]:.2f}" if column in row.values else ""
            for column in columns
        )
        table.append([row.what, *cells])
    print_table(["", *columns], table)
