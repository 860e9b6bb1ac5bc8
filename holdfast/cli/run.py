"""`holdfast run`: learn a stream, or continue."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.core.errors import HoldfastError
from holdfast.recipes import recipe, recipe_names

if TYPE_CHECKING:
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved configuration, train nothing.")
    ] = False,
) -> None:
    """Learn a stream task after task; a directory that exists is continued."""
    from holdfast.cli.progress import loading

    values = configuration(config)
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
    from holdfast.cli.summary import Learned, print_summary
    from holdfast.learning.trajectory import Trajectory

    trajectory = Trajectory(resolved, out)
    planned = len(trajectory.stream.tasks) if tasks is None else tasks
    with showing(resolved.method, trajectory.horizon, planned) as progress:
        matrix = trajectory.advance(tasks, progress)
    print_summary({resolved.method: Learned(matrix, out)})
    print(f"report: {write_report(out)}")
    print(out)


def configuration(name: str) -> dict[str, Any]:
    """The nested values of a recipe or of a YAML file; HoldfastError when it is neither."""
    from holdfast.core.config import read_yaml

    if name in recipe_names():
        return recipe(name)
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return read_yaml(path)
    nearest = difflib.get_close_matches(name, recipe_names(), n=1, cutoff=0.0)[0]
    raise HoldfastError(
        f'"{name}" is neither a recipe nor a YAML file; did you mean {nearest}? '
        f"recipes: {', '.join(recipe_names())}"
    )


def _print_plan(config: RunConfig, out: Path | None, tasks: int | None) -> None:
    """Print the configuration as YAML that `run` takes; sizes and fingerprints in comments.

    With a directory, its contents are checked as a run would; nothing is written.
    """
    import yaml

    from holdfast.core.config import sha256_of
    from holdfast.learning.trajectory import Trajectory
    from holdfast.streams import load_stream

    trajectory = None if out is None else Trajectory(config, out)
    stream = trajectory.stream if trajectory else load_stream(config.stream)
    horizon = tasks if tasks is not None else len(stream.tasks)
    if not 1 <= horizon <= len(stream.tasks):
        raise HoldfastError(f"--tasks {horizon} is not within the stream of {len(stream.tasks)}")
    sizes = [len(task.items) for task in stream.tasks[:horizon]]
    steps = sum(config.optim.epochs_of(size) * config.optim.steps_in_epoch(size) for size in sizes)
    print(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), end="")
    print(f"# {horizon} tasks of {stream.name}, {steps} optimiser steps")
    print(f"# stream {stream.fingerprint}")
    # The identity in config.json also covers the weights, which a dry run does not load.
    print(f"# settings {sha256_of(config.numbers())}")
    if trajectory and trajectory.horizon:
        print(f"# continues {out}, where {trajectory.horizon} tasks are learned")
