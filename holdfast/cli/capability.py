"""`holdfast capability`: what a model can still do beside what it was taught."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from holdfast.cli.printing import print_table
from holdfast.cli.progress import counting, loading
from holdfast.core.errors import HoldfastError
from holdfast.memory.record import is_memory

if TYPE_CHECKING:
    from holdfast.capability.run import Model
    from holdfast.results import CapabilityRow


def capability(
    targets: Annotated[
        list[str],
        Argument(
            metavar="DIR|MODEL...",
            help="Trajectories, or one backbone: embedded, a hub name, a directory, a .gguf file.",
        ),
    ],
    tasks: Annotated[
        str, Option(help="Suites, also mmlu and corpus.", metavar="NAME,...")
    ] = "gsm8k,math,mgsm,mmlu_redux,text",
    limit: Annotated[
        int | None, Option(help="Items of each suite at most; all by default.")
    ] = None,
    data_root: Annotated[
        Path | None, Option(help="Folder of published files; without it, the hub.")
    ] = None,
    out: Annotated[
        Path | None, Option(help="Where the results go; a trajectory's lie beside it by default.")
    ] = None,
    after_task: Annotated[
        int | None, Option(help="Of a trajectory: a kept boundary, 0 for the unmodified backbone.")
    ] = None,
    redux_errors: Annotated[
        Literal["drop", "keep", "correct"], Option(help="Items that MMLU-Redux marks as wrong.")
    ] = "drop",
) -> None:
    """Measure general capability: mathematics, knowledge, and the language itself.

    The same command continues where it was stopped.
    """
    from holdfast.results.record import is_trajectory

    backbones = [target for target in targets if not is_trajectory(Path(target))]
    if out is not None and len(targets) > 1:
        raise HoldfastError("--out takes the results of one model; give one, or leave --out away")
    for backbone in backbones:
        _check_backbone(backbone, out, after_task)

    with loading():
        from holdfast.capability import run

    names = [name.strip() for name in tasks.split(",") if name.strip()]
    with loading("reading the questions"):
        asked = run.questions(run.suites(redux_errors), names, data_root, limit)
    with loading("loading the model"):
        if backbones and out is not None:  # which is one
            models = [run.plain_model(backbones[0], out)]
        else:
            models = [run.trajectory_model(Path(target), after_task, out) for target in targets]
    for model in models:
        run.measure(model, asked, counting)
    for model in models:
        _print_scores(model, [question.suite.name for question in asked])
    for model in models:
        print(model.directory)


def _check_backbone(name: str, out: Path | None, after_task: int | None) -> None:
    if is_memory(Path(name)):
        raise HoldfastError(f"{name}: is a memory; holdfast evaluate {name} measures what it keeps")
    if out is None:
        raise HoldfastError(
            f"{name}: is no trajectory, and the results of a backbone need a place; add --out DIR"
        )
    if after_task is not None:
        raise HoldfastError(f"{name}: --after-task is for trajectories; leave it away")


def _print_scores(model: Model, suites: Sequence[str]) -> None:
    from holdfast.results.capability import boundary_directory, read_boundary

    past: dict[str, CapabilityRow] = {}
    if model.after_task:
        before = boundary_directory(Path(model.label), 0)
        past = {row.suite: row for row in read_boundary(before, 0)}
        print(f"{model.label} after {model.after_task} tasks; change since before the first:")
    else:
        print(f"{model.label}, unmodified:")
    now = {row.suite: row for row in read_boundary(model.directory, model.after_task, suites)}
    rows = []
    for row in (now[suite] for suite in suites):
        value, items = f"{row.value:.3f}", str(row.items)
        cells = [value, "-", items, str(row.extracted)]
        if row.bits_per_byte is not None:
            cells = ["-", value, items, "-"]
        unmodified, change = past.get(row.suite), "-"
        if unmodified is not None and unmodified.settings == row.settings:
            change = f"{row.value - unmodified.value:+.3f}"
        rows.append([row.suite, *cells, change])
    print_table(["suite", "score", "bits/byte", "items", "extracted", "change"], rows)
