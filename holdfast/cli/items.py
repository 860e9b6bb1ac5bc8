"""`holdfast items`: which facts go first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_SHOWN = 10


def items(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run with evaluation.items=true.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write every verdict there, as CSV.", show_default=False),
    ] = None,
    show: Annotated[
        int, typer.Option("--show", min=0, help="How many of the first lost items to print.")
    ] = _SHOWN,
) -> None:
    """Recall by item: by age, by length, by rehearsal, and which facts went first."""
    from holdfast.analysis import items as tables
    from holdfast.analysis.tables import markdown
    from holdfast.core.files import write_text_atomically

    found = tables.read_items(run)
    frame = found.to_frame()
    print(f"recalled, by tasks learned since:\n{markdown(tables.by_age(frame))}")
    last = frame["after_task"].max()
    length = tables.by_length(frame)
    if len(length):
        print(f"after task {last}, by characters of question and answer:\n{markdown(length)}")
    rehearsal = tables.by_rehearsal(frame)
    if len(rehearsal):
        print(f"after task {last}, by samples that asked it:\n{markdown(rehearsal)}")
        print(f"the samples before each task:\n{markdown(tables.sampled(found))}")
    lives = tables.lives(frame)
    lost = lives[lives["lost_after"].notna()]
    if show and len(lost):
        columns = ["on_task", "question", "answer", "life", "lost_after"]
        print(f"lost first, of {len(lost)} lost:\n{markdown(lost[columns].head(show))}")
    if out is not None:
        write_text_atomically(out, frame.to_csv(index=False))
        print(out)
