"""`holdfast run`: learn a stream, or continue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.fetch import fetch_backbone
from holdfast.cli.track import Track, refuse_unknown_tracker
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.processes import is_rank_zero
from holdfast.recipes import on_dataset, recipe, recipe_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.learning.config import RunConfig


def run(
    config: Annotated[str, typer.Argument(help="A recipe's name or a YAML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted settings.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The trajectory's directory.", show_default=False)
    ] = None,
    tasks: Annotated[
        int | None, typer.Option("--tasks", help="Stop after so many tasks; all by default.")
    ] = None,
    track: Track = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved configuration, train nothing.")
    ] = False,
) -> None:
    """Learn a stream task after task; a directory that exists is continued."""
    from holdfast.cli.progress import loading

    values = configuration(config, dataset_of(overrides or []))
    refuse_unknown_tracker(track)
    with loading():
        from holdfast.learning.config import RunConfig

        resolved = RunConfig.of(values, overrides or [])
    if dry_run:
        _print_plan(resolved, out, tasks)
        return
    if out is None:
        raise HoldfastError("run needs a directory for its results; add --out DIR")

    from holdfast.cli.progress import showing
    from holdfast.cli.report import write_report
    from holdfast.cli.summary import LearnedRun, print_summary
    from holdfast.learning.trajectory import Trajectory
    from holdfast.tracking.tracking import tracked

    trajectory = Trajectory(resolved, out)
    planned = len(trajectory.stream.tasks) if tasks is None else tasks
    if is_rank_zero() and trajectory.horizon < planned:
        fetch_backbone(resolved.backbone.name)
    with (
        showing(resolved.method, trajectory.horizon, planned, out) as progress,
        tracked(
            track if is_rank_zero() else None, resolved, out, trajectory.horizon, progress
        ) as listener,
    ):
        matrix = trajectory.advance(tasks, listener)
    if not is_rank_zero():
        return
    print_summary({resolved.method: LearnedRun(matrix, out)})
    print(f"report: {write_report(out)}")
    print(out)


def dataset_of(overrides: Iterable[str]) -> str | None:
    """The name of the stream's directory, which is that of its data set; None if none is given."""
    streams = [text for text in overrides if text.startswith("stream.name=")]
    return Path(streams[-1].partition("=")[2]).name if streams else None


def configuration(name: str, dataset: str | None = None) -> dict[str, Any]:
    """The nested values of a recipe or of a YAML file; HoldfastError when it is neither.

    dataset: apply what it sets otherwise on the data set of this name, if anything.
    """
    from holdfast.core.config import read_yaml

    if name in recipe_names():
        return recipe(name, dataset)
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return on_dataset(read_yaml(path), dataset)
    raise HoldfastError(
        f'"{name}" is neither a recipe nor a YAML file; {did_you_mean(name, recipe_names())}'
    )


def _print_plan(config: RunConfig, out: Path | None, tasks: int | None) -> None:
    """Print the configuration as YAML that `run` takes; sizes and fingerprints in comments.

    With a directory, its contents are checked as a run would; nothing is written.
    """
    import yaml

    from holdfast.core.config import sha256_of
    from holdfast.learning.stream import check_without_weights, stream_of
    from holdfast.learning.trajectory import Trajectory

    trajectory = None if out is None else Trajectory(config, out)
    stream = trajectory.stream if trajectory else stream_of(config)
    horizon = tasks if tasks is not None else len(stream.tasks)
    if not 1 <= horizon <= len(stream.tasks):
        raise HoldfastError(f"--tasks {horizon} is not within the stream of {len(stream.tasks)}")
    learned = trajectory.horizon if trajectory else 0
    unchecked = check_without_weights(config, stream.first(horizon), learned)
    sizes = [len(task.items) for task in stream.tasks[:horizon]]
    steps = sum(config.optim.epochs_of(size) * config.optim.steps_in_epoch(size) for size in sizes)
    print(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), end="")
    print(f"# {horizon} tasks of {stream.name}, {steps} optimiser steps")
    print(f"# stream {stream.fingerprint}")
    # The identity in config.json also covers the weights, which a dry run does not load.
    print(f"# settings {sha256_of(config.numbers())}")
    if unchecked:
        print(f"# maps and lengths are not checked: {unchecked}")
    if trajectory and trajectory.horizon:
        print(f"# continues {out}, where {trajectory.horizon} tasks are learned")
