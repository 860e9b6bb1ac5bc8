"""`holdfast run`: learn a stream, or continue a run; `holdfast recipes`: what it can be given."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from holdfast.cli.analyse import write_report
from holdfast.cli.fetch import fetch_backbone
from holdfast.cli.printing import print_table
from holdfast.cli.progress import loading, showing
from holdfast.cli.verbs import Overrides
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.processes import is_rank_zero
from holdfast.recipes import describe, on_dataset, recipe, recipe_names, recipe_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.learning.config import RunConfig
    from holdfast.results import RecallMatrix

Tasks = Annotated[int | None, Option(help="Stop after so many tasks; all by default.")]
Track = Annotated[
    str | None,
    Option(
        metavar="TRACKER",
        help="Send what is learned to tensorboard, wandb, mlflow or trackio meanwhile.",
    ),
]
_COLUMNS = {
    "Final": "final",
    "Diag": "diag",
    "Forget": "forget",
    "W(10)": "w10",
    "transfer": "forward_transfer",
}
_WIDEST = 18  # tasks whose matrix fits the 80 columns of a terminal


def run(
    config: Annotated[str, Argument(help="A recipe's name or a YAML file.")],
    overrides: Overrides = None,
    out: Annotated[Path | None, Option(help="The trajectory's directory.")] = None,
    tasks: Tasks = None,
    track: Track = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print the resolved configuration, train nothing.")
    ] = False,
) -> None:
    """Learn a stream task after task; a directory that exists is continued."""
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

    from holdfast.learning.trajectory import Trajectory
    from holdfast.tracking.tracking import tracked

    trajectory = Trajectory(resolved, out)
    method, learned = resolved.method, trajectory.horizon
    planned = len(trajectory.stream.tasks) if tasks is None else tasks
    if not is_rank_zero():
        track = None
    elif learned < planned:
        fetch_backbone(resolved.backbone.name)
    with (
        showing(method, learned, planned, out) as progress,
        tracked(track, resolved, out, learned, progress) as listener,
    ):
        matrix = trajectory.advance(tasks, listener)
    if is_rank_zero():
        print_summary({method: (matrix, out)})
        print(f"report: {write_report(out)}")
        print(out)


def recipes(
    name: Annotated[str | None, Argument(help="Print this recipe as YAML.")] = None,
) -> None:
    """List the recipes, or print one."""
    if name is not None:
        print(recipe_text(name), end="")
        return
    names = recipe_names()
    width = max(map(len, names))
    for recipe_name in names:
        print(f"{recipe_name:<{width}}  {describe(recipe_name)}")


def refuse_unknown_tracker(track: str | None) -> None:
    """Raise HoldfastError for a tracker that is none, or whose client is not installed."""
    if track is not None:
        from holdfast.tracking.tracking import check_tracker

        check_tracker(track)


def dataset_of(overrides: Iterable[str]) -> str | None:
    """The data set's name: the last component of ``stream.name``; None if that is not given."""
    streams = [text for text in overrides if text.startswith("stream.name=")]
    return Path(streams[-1].partition("=")[2]).name if streams else None


def configuration(name: str, dataset: str | None = None) -> dict[str, Any]:
    """The nested values of a recipe or of a YAML file, with its settings for the data set."""
    names = recipe_names()
    if name in names:
        return recipe(name, dataset)
    return on_dataset(values_of_file(name, "a recipe", names), dataset)


def values_of_file(name: str, recipes: str, names: list[str]) -> dict[str, Any]:
    """The values of a YAML file; HoldfastError if there is none. recipes, names: for that error."""
    from holdfast.core.config import read_yaml

    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return read_yaml(path)
    raise HoldfastError(
        f'"{name}" is neither {recipes} nor a YAML file; {did_you_mean(name, names)}'
    )


def _print_plan(config: RunConfig, out: Path | None, tasks: int | None) -> None:
    """Print the configuration as YAML that `run` takes; sizes and fingerprints in comments."""
    import yaml

    from holdfast.core.config import sha256_of
    from holdfast.learning.stream import check_without_weights, stream_of
    from holdfast.learning.trajectory import Trajectory

    trajectory = None if out is None else Trajectory(config, out)  # refuses as a run would
    stream = trajectory.stream if trajectory else stream_of(config)
    learned = trajectory.horizon if trajectory else 0
    horizon = tasks if tasks is not None else len(stream.tasks)
    if not 1 <= horizon <= len(stream.tasks):
        raise HoldfastError(f"--tasks {horizon} is not within the stream of {len(stream.tasks)}")
    unchecked = check_without_weights(config, stream.first(horizon), learned)
    sizes = [len(task.items) for task in stream.tasks[:horizon]]
    steps = sum(map(config.optim.steps_of, sizes))
    print(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), end="")
    print(f"# {horizon} tasks of {stream.name}, {steps} optimiser steps")
    print(f"# stream {stream.fingerprint}")
    # The identity in config.json also covers the weights, which a dry run does not load.
    print(f"# settings {sha256_of(config.numbers())}")
    if unchecked:
        print(f"# maps and lengths are not checked: {unchecked}")
    if learned:
        print(f"# continues {out}, where {learned} tasks are learned")


def print_summary(learned: Mapping[str, tuple[RecallMatrix, Path]]) -> None:
    """Print a row of metrics for each run, of its label, its matrix and its directory."""
    from holdfast.results import summarise
    from holdfast.results.record import task_seconds

    rows = []
    for label, (matrix, directory) in learned.items():
        metrics = summarise(matrix)
        values = (metrics[key] for key in _COLUMNS.values())
        cells = ["-" if value is None else f"{value:.3f}" for value in values]
        # As logged by each task, so without interruptions and repeated calls.
        seconds = sum(task_seconds(directory, matrix.horizon))
        last = half_life_words(metrics), f"{seconds:.0f}"
        rows.append([label, str(matrix.horizon), *cells, *last])
    # The longest tag of the paper just fits 80 columns; a longer one is folded, never cut.
    print_table(["method", "tasks", *_COLUMNS, "half-life", "seconds"], rows)


def matrix_text(matrix: RecallMatrix) -> str:
    """The matrix in per cent, one line per row; a note if it is too wide for a terminal."""
    tasks = matrix.horizon
    if tasks > _WIDEST:
        return f"  {tasks} tasks are too many for a terminal; see the figure"
    lines = ["  after task" + "".join(f"{task:4}" for task in range(1, tasks + 1)) + "  on task"]
    for after_task in range(1, tasks + 1):
        row = (matrix[after_task, on_task] for on_task in range(1, after_task + 1))
        cells = "".join("   -" if math.isnan(share) else f"{100 * share:4.0f}" for share in row)
        lines.append(f"{after_task:12}{cells}")
    return "\n".join(lines)


def half_life_words(metrics: Mapping[str, Any]) -> str:
    """The half-life; ``>9`` when R(a) stays above half of R(0) at every age."""
    if metrics["half_life"] is not None:
        return str(metrics["half_life"])
    retention = metrics["retention_by_age"]
    if not retention or None in retention or retention[0] == 0:
        return "-"
    return f">{len(retention) - 1}"
