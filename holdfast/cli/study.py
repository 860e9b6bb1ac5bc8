"""`holdfast search`: task-level successive halving; what it shares with `holdfast suite`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from holdfast.cli.analyse import write_report
from holdfast.cli.progress import loading
from holdfast.cli.run import (
    Track,
    configuration,
    dataset_of,
    refuse_unknown_tracker,
    values_of_file,
)
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.recipes import Study
    from holdfast.studies.executor import Executor
    from holdfast.studies.search import Search, Standing
    from holdfast.studies.slurm_executor import SlurmParameters


Kind = Literal["local", "ray", "slurm"]  # which executor advances the cells
Overrides = Annotated[
    list[str] | None, Argument(metavar="[KEY=VALUE]...", help="Dotted settings of all cells.")
]
Out = Annotated[Path | None, Option(help="The study's directory.")]
Store = Annotated[
    Path | None, Option(help="Where trajectories lie; OUT/cells if unsaid. Studies may share.")
]
Workers = Annotated[
    int | None,
    Option(min=1, help="Cells learned side by side; 1 if unsaid, on a cluster as many as fit."),
]
WorkersPerGpu = Annotated[int, Option(min=1, help="With GPUs: so many workers on each.")]
Threads = Annotated[
    int | None, Option(min=1, help="Of each worker; 1 if unsaid, beside a GPU its share.")
]
ExecutorName = Annotated[
    Kind, Option("--executor", help="Worker processes here, a Ray cluster, or jobs of Slurm.")
]
RayAddress = Annotated[
    str | None,
    Option(
        metavar="HOST:PORT",
        help="The cluster's head; with --executor ray. Unsaid: RAY_ADDRESS, or a Ray of its own.",
    ),
]
Slurm = Annotated[
    list[str] | None,
    Option(
        metavar="KEY=VALUE",
        help="What each job asks of Slurm, such as partition=gpu; with --executor slurm; may be "
        "repeated.",
    ),
]
DryRun = Annotated[bool, Option("--dry-run", help="Print the plan, learn nothing.")]
_SHOWN = 10


def recipe_values(kind: Study, name: str) -> dict[str, Any]:
    """The values of a study's recipe, or of a YAML file; HoldfastError when it is neither."""
    from holdfast.recipes import study, study_names

    names = study_names(kind)
    return (
        study(kind, name) if name in names else values_of_file(name, f"a recipe of a {kind}", names)
    )


def own_settings(overrides: list[str] | None) -> list[str]:
    """The user's settings, ``stream=X`` read as ``stream.name=X``.

    Raises HoldfastError for a method or a seed, which the study itself varies.
    """
    from holdfast.core.former import given_overrides

    settings = []
    for override in given_overrides(overrides or []):
        key, separator, value = override.partition("=")
        if key in ("method", "seed"):
            raise HoldfastError(f"{override}: the study sets {key} itself; use its own options")
        settings.append(f"stream.name={value}" if key == "stream" and separator else override)
    return settings


def directory(out: Path | None, *, dry_run: bool) -> Path:
    """The study's directory, which only a dry run does not need; else HoldfastError."""
    if out is None and not dry_run:
        raise HoldfastError("a study needs a directory for its results; add --out DIR")
    return out or Path("study")


def slurm_parameters(kind: Kind, lines: list[str] | None) -> SlurmParameters | None:
    """What each job asks of Slurm; None with another executor.

    lines: ``KEY=VALUE`` each. Raises HoldfastError for one that submitit does not know.
    """
    if kind != "slurm":
        if lines:
            raise HoldfastError("--slurm goes with --executor slurm; add it")
        return None
    from holdfast.core.config import apply_overrides, build
    from holdfast.studies.slurm_executor import SlurmParameters

    return build(SlurmParameters, apply_overrides({}, lines or []), source="--slurm")


def executor(
    kind: Kind,
    address: str | None,
    workers: int | None,
    per_gpu: int,
    threads: int | None,
    device: str,
    place: Path,
    slurm: SlurmParameters | None,
) -> Executor:
    """The executor; HoldfastError when its cluster cannot be reached or it is not installed.

    device: that of the cells' backbones; place: the study's directory; slurm: what a job asks.
    """
    if kind == "ray":
        from holdfast.studies.ray_executor import RayExecutor

        with loading("looking for Ray"):
            return RayExecutor(
                address, workers=workers, workers_per_gpu=per_gpu, threads=threads or 1
            )
    if address is not None:
        raise HoldfastError("--ray-address goes with --executor ray; add it")
    if kind == "slurm":
        from holdfast.studies.slurm_executor import SlurmExecutor

        if per_gpu > 1:
            raise HoldfastError(
                "--workers-per-gpu is not for --executor slurm, whose jobs have what --slurm says; "
                "leave it out"
            )
        return SlurmExecutor(place / "slurm", slurm, workers=workers, threads=threads or 1)
    from holdfast.studies.local import LocalExecutor, usable_gpus

    gpus = [] if device == "cpu" else usable_gpus()
    if gpus:
        return LocalExecutor(workers, devices=gpus, workers_per_gpu=per_gpu, threads=threads)
    return LocalExecutor(workers, threads=threads)


def search(
    config: Annotated[str, Argument(help="A search's recipe or a YAML file.")],
    overrides: Overrides = None,
    out: Out = None,
    store: Store = None,
    workers: Workers = None,
    workers_per_gpu: WorkersPerGpu = 1,
    threads: Threads = None,
    kind: ExecutorName = "local",
    ray_address: RayAddress = None,
    slurm: Slurm = None,
    track: Track = None,
    dry_run: DryRun = False,
) -> None:
    """Learn a few tasks with every candidate, keep the best, let them learn more.

    The same command continues where it was stopped.
    """
    from holdfast.core.config import build

    values = recipe_values("search", config)
    settings = own_settings(overrides)
    jobs = slurm_parameters(kind, slurm)
    refuse_unknown_tracker(track)
    with loading():
        from holdfast.studies.recipe import SearchRecipe
        from holdfast.studies.search import Search

        recipe = build(SearchRecipe, values, source=f"search {config}")
        base = configuration(recipe.base, dataset_of([*recipe.overrides, *settings]))
        place = directory(out, dry_run=dry_run)
        plan = Search(recipe, base, settings, place, store)
    if dry_run:
        _print_funnel(plan)
        return
    cost = recipe.schedule.cost(len(plan.candidates)) * len(recipe.seeds)
    from holdfast.cli.study_table import watching
    from holdfast.learning.task_lines import duration

    workforce = executor(
        kind, ray_address, workers, workers_per_gpu, threads, plan.device, place, jobs
    )
    with watching("search", cost) as watch:
        trace = plan.run(workforce, watch, track)
    _print_leaders(trace)
    learned = plan.cost(trace)
    share = learned["tasks"] / learned["exhaustive"]
    tasks = f"{learned['tasks']:,} tasks instead of {learned['exhaustive']:,}"
    print(f"learned {tasks} ({share:.1%}) in {duration(learned['seconds'])} of workers")
    lost = all(one.score is None for one in trace)
    if not lost:
        print(f"report: {write_report(place)}")
    print(place)
    if lost:
        raise HoldfastError(
            "every candidate failed, as said above; repeat the command to try again"
        )


def _print_funnel(plan: Search) -> None:
    schedule, seeds = plan.recipe.schedule, len(plan.recipe.seeds)
    count = len(plan.candidates)
    print(f"{'horizon':>8}{'candidates':>12}{'cells':>7}{'tasks a seed':>14}")
    before = 0
    for horizon, size in zip(schedule.horizons, schedule.sizes(count), strict=True):
        print(f"{horizon:>8}{size:>12}{size * seeds:>7}{size * (horizon - before):>14,}")
        before = horizon
    cost, all_of_it = schedule.cost(count), schedule.exhaustive(count)
    print(
        f"{cost:,} tasks a seed instead of {all_of_it:,} ({cost / all_of_it:.1%}), "
        f"{seeds} seeds: {cost * seeds:,}"
    )
    print(f"stream {plan.stream.name}, {len(plan.stream.tasks)} tasks, {plan.stream.fingerprint}")


def _print_leaders(trace: Sequence[Standing]) -> None:
    last = max(one.horizon for one in trace)
    standings = [one for one in trace if one.horizon == last]
    print(f"after {last} tasks:")
    for one in standings[:_SHOWN]:
        score = "failed" if one.score is None else f"{one.score:.3f}"
        spread = "" if one.deviation is None else f"±{one.deviation:.3f}"
        print(f"{one.rank:>3} {score:>7}{spread:>8}  {one.candidate.name}")
    if len(standings) > _SHOWN:
        print(f"    ... {len(standings) - _SHOWN} more in leaderboard.csv")
    for one in (one for one in trace if one.error is not None):
        print(f"failed at horizon {one.horizon}: {one.candidate.name}: {one.error}")
