"""`holdfast items`: what became of each item of a run; `holdfast shares`: what its anchors see."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from holdfast.cli.printing import json_line, print_table
from holdfast.cli.progress import WorkBars, loading

if TYPE_CHECKING:
    import pandas as pd


def items(
    run: Annotated[
        Path, Argument(metavar="RUN", help="A run with evaluation.items or sampling.keep.")
    ],
    out: Annotated[Path | None, Option(help="Write every verdict there, as CSV.")] = None,
    figure: Annotated[
        Path | None, Option(help="Draw who is in the samples there, as FIGURE.png and .pdf.")
    ] = None,
    show: Annotated[int, Option(min=0, help="How many of the first lost items to print.")] = 10,
) -> None:
    """Recall by item: by age, by length, by rehearsal, and which facts went first."""
    from holdfast.analysis.items import read_items, sampled
    from holdfast.analysis.tables import markdown
    from holdfast.core.files import write_text_atomically

    recorded = read_items(run)
    frame = recorded.to_frame()
    if len(frame):
        _print_recall(frame, show)
    if recorded.samples:
        print(f"the samples before each task:\n{markdown(sampled(recorded))}")
    if figure is not None:
        from holdfast.analysis.items import item_tables
        from holdfast.analysis.study import read_study
        from holdfast.report.bars import plot_samples
        from holdfast.report.figures import save

        tables = item_tables(read_study(run).cells)
        base = figure.with_suffix("") if figure.suffix in (".png", ".pdf") else figure
        print(save(plot_samples(tables["samples"], tables["samples_by_age"]), base)[0])
    if out is not None:
        write_text_atomically(out, frame.to_csv(index=False), parents=True)
        print(out)


def _print_recall(frame: pd.DataFrame, show: int) -> None:
    from holdfast.analysis import items as tables
    from holdfast.analysis.tables import markdown

    print(f"recalled, by tasks learned since:\n{markdown(tables.by_age(frame))}")
    last = frame["after_task"].max()
    by = {
        "characters of question and answer": tables.by_length(frame),
        "samples that asked it": tables.by_rehearsal(frame),
    }
    for group, table in by.items():
        if len(table):
            print(f"after task {last}, by {group}:\n{markdown(table)}")
    histories = tables.item_histories(frame)
    lost = histories[histories["lost_after"].notna()]
    if show and len(lost):
        columns = ["on_task", "question", "answer", "life", "lost_after"]
        print(f"lost first, of {len(lost)} lost:\n{markdown(lost[columns].head(show))}")


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
