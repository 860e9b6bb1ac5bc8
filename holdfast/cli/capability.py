"""`holdfast capability`: what a model can still do besides recalling what it learned."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.core.errors import HoldfastError
from holdfast.memory.record import is_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.capability.model import Model
    from holdfast.results import CapabilityRow

_TASKS = "gsm8k,math,mgsm,mmlu_redux,text"


class ReduxErrors(StrEnum):
    """How to treat the questions that MMLU-Redux marks as wrong."""

    drop = "drop"
    keep = "keep"
    correct = "correct"


def capability(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR|MODEL...",
            help="Trajectories or memories, or one backbone: embedded, a hub name or a directory.",
        ),
    ],
    tasks: Annotated[
        str, typer.Option("--tasks", help="Suites, also mmlu and corpus.", metavar="NAME,...")
    ] = _TASKS,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Items of each suite at most; all by default.")
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option("--data-root", help="Folder of published files; without it, the hub."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Where the results go; a trajectory's lie beside it by default."
        ),
    ] = None,
    after_task: Annotated[
        int | None,
        typer.Option(
            "--after-task", help="Of a trajectory: a kept boundary, 0 for the unmodified backbone."
        ),
    ] = None,
    redux_errors: Annotated[
        ReduxErrors, typer.Option("--redux-errors", help="Items that MMLU-Redux marks as wrong.")
    ] = ReduxErrors.drop,
) -> None:
    """Measure general capability: mathematics, knowledge, and the language itself.

    The same command continues where it was stopped.
    """
    from holdfast.results.description import is_trajectory

    paths = [Path(target) if is_trajectory(Path(target)) else None for target in targets]
    _check_places(targets, paths, out, after_task)
    from holdfast.cli.progress import counting, loading

    with loading():
        from holdfast.capability.model import plain_model, trajectory_model
        from holdfast.capability.run import measure, questions, suites

    names = [name.strip() for name in tasks.split(",") if name.strip()]
    with loading("reading the questions"):
        asked = questions(suites(redux_errors.value), names, data_root, limit)
    with loading("loading the model"):
        models = [
            plain_model(target, out)
            if path is None and out is not None
            else trajectory_model(Path(target), after_task, out)
            for target, path in zip(targets, paths, strict=True)
        ]
    for model in models:
        measure(model, asked, counting)
    for model in models:
        _print_scores(model, [question.suite.name for question in asked])
    for model in models:
        print(model.directory)


def _check_places(
    targets: Sequence[str], paths: Sequence[Path | None], out: Path | None, after_task: int | None
) -> None:
    if out is not None and len(targets) > 1:
        raise HoldfastError("--out takes the results of one model; give one, or leave --out away")
    for target, path in zip(targets, paths, strict=True):
        if path is not None:
            continue
        if is_memory(Path(target)):
            raise HoldfastError(
                f"{target}: is a memory; holdfast evaluate {target} measures what it keeps"
            )
        if out is None:
            raise HoldfastError(
                f"{target}: is no trajectory, and the results of a backbone need a place; "
                "add --out DIR"
            )
        if after_task is not None:
            raise HoldfastError(f"{target}: --after-task is for trajectories; leave it away")


def _print_scores(model: Model, suites: Sequence[str]) -> None:
    from rich.table import Table

    from holdfast.cli.printing import SafeConsole
    from holdfast.results.capability import boundary, read_boundary

    past: dict[str, CapabilityRow] = {}
    if model.after_task:
        before = boundary(Path(model.label), 0)
        past = {row.suite: row for row in read_boundary(before, 0)}
        print(f"{model.label} after {model.after_task} tasks; change since before the first:")
    else:
        print(f"{model.label}, unmodified:")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("suite")
    for heading in ("score", "bits/byte", "items", "extracted", "change"):
        table.add_column(heading, justify="right", no_wrap=True)
    found = {row.suite: row for row in read_boundary(model.directory, model.after_task)}
    for row in (found[suite] for suite in suites):
        text = row.bits_per_byte is not None
        table.add_row(
            row.suite,
            "-" if text else f"{row.value:.3f}",
            f"{row.value:.3f}" if text else "-",
            str(row.items),
            "-" if text else str(row.extracted),
            _change(row, past.get(row.suite)),
        )
    SafeConsole(highlight=False).print(table)


def _change(row: CapabilityRow, before: CapabilityRow | None) -> str:
    """The change from the unmodified backbone; ``-`` unless both have the same settings."""
    if before is None or before.settings != row.settings:
        return "-"
    return f"{row.value - before.value:+.3f}"
