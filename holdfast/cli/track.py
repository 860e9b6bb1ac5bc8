"""The option `--track` of what learns: send it to an experiment tracker."""

from __future__ import annotations

from typing import Annotated

import typer

Track = Annotated[
    str | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        help="Send what is learned to tensorboard, wandb, mlflow or trackio meanwhile.",
    ),
]


def refuse_unknown_tracker(track: str | None) -> None:
    """Raise HoldfastError unless it is None, or a tracker whose client is installed."""
    if track is not None:
        from holdfast.tracking.tracking import check_tracker

        check_tracker(track)
