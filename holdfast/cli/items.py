"""`holdfast items`: what became of each item of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

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
        print(save(plot_samples(tables.samples, tables.samples_by_age), base)[0])
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
