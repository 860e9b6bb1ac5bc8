"""`holdfast search`, task-level successive halving, and `holdfast suite`, methods and seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from holdfast.cli.analyse import write_report
from holdfast.cli.progress import loading
from holdfast.cli.run import (
    Tasks,
    Track,
    configuration,
    dataset_of,
    refuse_unknown_tracker,
    values_of_file,
)
from holdfast.cli.verbs import Overrides
from holdfast.core.errors import HoldfastError
from holdfast.recipes import recipe_names, study

if TYPE_CHECKING:
    from holdfast.learning.config import RunConfig
    from holdfast.recipes import Study
    from holdfast.studies.executor import Executor
    from holdfast.studies.search import Search, Standing
    from holdfast.studies.slurm_executor import SlurmParameters


Kind = Literal["local", "ray", "slurm"]  # which executor advances the cells
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
_MOST = 10  # candidates of the leaderboard that are printed


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
    settings = cell_settings(overrides)
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
    from holdfast.learning.progress import duration

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
    all_failed = all(standing.score is None for standing in trace)
    if not all_failed:
        print(f"report: {write_report(place)}")
    print(place)
    if all_failed:
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
    cost, exhaustive = schedule.cost(count), schedule.exhaustive(count)
    print(
        f"{cost:,} tasks a seed instead of {exhaustive:,} ({cost / exhaustive:.1%}), "
        f"{seeds} seeds: {cost * seeds:,}"
    )
    print(f"stream {plan.stream.name}, {len(plan.stream.tasks)} tasks, {plan.stream.fingerprint}")


def _print_leaders(trace: Sequence[Standing]) -> None:
    last = max(standing.horizon for standing in trace)
    standings = [standing for standing in trace if standing.horizon == last]
    print(f"after {last} tasks:")
    for standing in standings[:_MOST]:
        score = "failed" if standing.score is None else f"{standing.score:.3f}"
        spread = "" if standing.deviation is None else f"±{standing.deviation:.3f}"
        print(f"{standing.rank:>3} {score:>7}{spread:>8}  {standing.candidate.name}")
    if len(standings) > _MOST:
        print(f"    ... {len(standings) - _MOST} more in leaderboard.csv")
    for standing in (standing for standing in trace if standing.error is not None):
        print(f"failed at horizon {standing.horizon}: {standing.candidate.name}: {standing.error}")


def suite(
    config: Annotated[str | None, Argument(help="A suite's recipe or a YAML file.")] = None,
    overrides: Overrides = None,
    out: Out = None,
    methods: Annotated[
        str | None, Option(help="Only these tags, such as vanilla,replay_merge.")
    ] = None,
    seeds: Annotated[str | None, Option(help="Only these, such as 41,42.")] = None,
    dataset: Annotated[str | None, Option(help="Which of the suite's data sets it is.")] = None,
    grid: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=[A,B]",
            help="Cross the methods with these values of a setting; may be repeated.",
        ),
    ] = None,
    from_search: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Instead of a recipe: a search's best candidate of each allocation rule "
            "(or of each of --methods), with its settings.",
        ),
    ] = None,
    tasks: Tasks = None,
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
    """Learn a stream with many methods and seeds; the same command continues."""
    if from_search is not None and config is not None and "=" in config:
        overrides, config = [config, *(overrides or [])], None
    settings = cell_settings(overrides)
    jobs = slurm_parameters(kind, slurm)
    refuse_unknown_tracker(track)
    with loading():
        from holdfast.studies.suite import Suite

        swept: list[str] = []
        if from_search is None:
            configs, swept = _of_recipe(config, settings, methods, seeds, dataset, grid)
        else:
            _refuse_beside_search(config, dataset, grid)
            from holdfast.studies.search import SEEDS, finalists

            tags = _methods(methods) or None
            configs = finalists(from_search, settings, _seeds(seeds) or SEEDS, tags)
        place = directory(out, dry_run=dry_run)
        plan = Suite(configs, place, store, tasks, from_search, swept)
    if dry_run:
        print("\n".join(f"{cell.candidate} seed {cell.config.seed}" for cell in plan.cells))
        print(f"{len(plan.cells)} cells of {plan.horizon} tasks of {plan.stream.name}")
        return
    from holdfast.cli.study_table import watching

    workforce = executor(
        kind, ray_address, workers, workers_per_gpu, threads, plan.device, place, jobs
    )
    with watching("suite", len(plan.cells) * plan.horizon) as watch:
        rows = plan.run(workforce, watch, track)
    _print_rows(rows)
    failed = sum(row["error"] is not None for row in rows)
    if failed < len(rows):
        print(f"report: {write_report(place)}")
    print(place)
    if failed:
        raise HoldfastError(
            f"{failed} of {len(rows)} cells failed, as said above; repeat the command to try again"
        )


def _of_recipe(
    config: str | None,
    settings: list[str],
    methods: str | None,
    seeds: str | None,
    dataset: str | None,
    grid: list[str] | None,
) -> tuple[list[RunConfig], list[str]]:
    from holdfast.core.config import build
    from holdfast.studies.recipe import SuiteRecipe
    from holdfast.studies.suite import configurations

    if config is None:
        raise HoldfastError("which suite? name a recipe, a YAML file, or --from-search DIR")
    values = recipe_values("suite", config)
    recipe = build(SuiteRecipe, values, source=f"suite {config}")
    stream = configuration(recipe.base).get("stream") or {}
    dataset_name = dataset_of([f"stream.name={stream.get('name', '')}", *settings])
    if dataset is None and recipe.datasets:
        dataset = dataset_name or ""
        if dataset not in recipe.datasets:
            raise HoldfastError(
                f"{dataset}: which data set is it? add --dataset {'|'.join(recipe.datasets)}"
            )
    base = configuration(recipe.base, dataset or dataset_name)
    tags = _methods(methods) or recipe.methods_on(dataset)
    overrides = [*recipe.overrides(dataset), *settings]
    points = {**recipe.grid, **_grid(grid)}
    for setting in settings:  # a setting on the command line has one value
        points.pop(setting.partition("=")[0], None)
    configs = configurations(tags, _seeds(seeds) or recipe.seeds, base, overrides, points)
    return configs, list(points)


def _grid(lines: list[str] | None) -> dict[str, list[Any]]:
    from holdfast.core.config import build, setting_value
    from holdfast.studies.recipe import Grid

    values: dict[str, Any] = {}
    for line in lines or []:
        key, _, text = line.partition("=")
        if key in values:
            raise HoldfastError(f"--grid: {key} is there twice; put its values in one list")
        values[key] = setting_value(text)
    return build(Grid, {"grid": values}, source="--grid").grid


def _refuse_beside_search(config: str | None, dataset: str | None, grid: list[str] | None) -> None:
    if config is not None:
        raise HoldfastError(f"{config} and --from-search: choose one, a recipe or a search")
    if dataset is not None:
        raise HoldfastError("--dataset is for recipes; a search is of one data set")
    if grid:
        raise HoldfastError("--grid is for recipes; a search has chosen the settings")


def _methods(chosen: str | None) -> list[str]:
    from holdfast.learning.method import parse_method

    tags = chosen.split(",") if chosen is not None else []
    return list(dict.fromkeys(parse_method(tag.strip()).tag for tag in tags))


def _seeds(chosen: str | None) -> list[int]:
    seeds = chosen.split(",") if chosen is not None else []
    try:
        return list(dict.fromkeys(map(int, seeds)))
    except ValueError:
        raise HoldfastError(f"--seeds {chosen}: write whole numbers, such as 41,42") from None


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    from holdfast.studies.suite import summary

    lines = summary(rows)
    names = [line.get("candidate", line["method"]) for line in lines]
    wide = max(21, *map(len, names)) + 1
    print(
        f"{'method':<{wide}}{'seeds':>6}{'Final':>8}{'+-':>7}{'Diag':>7}{'Forget':>8}{'W(10)':>7}"
    )
    for name, line in zip(names, lines, strict=True):
        numbers = (line["final"], line["final_sd"], line["diag"], line["forget"], line["w10"])
        cells = (f"{value:.3f}" if value is not None else "" for value in numbers)
        print(f"{name:<{wide}}{line['seeds']:>6}" + "{:>8}{:>7}{:>7}{:>8}{:>7}".format(*cells))
    for row in (row for row in rows if row["error"] is not None):
        print(f"failed: {row.get('candidate', row['method'])}, seed {row['seed']}: {row['error']}")


def recipe_values(kind: Study, name: str) -> dict[str, Any]:
    """The values of a study's recipe, or of a YAML file; HoldfastError if it is neither."""
    names = recipe_names(kind)
    if name in names:
        return study(kind, name)
    return values_of_file(name, f"a recipe of a {kind}", names)


def cell_settings(overrides: list[str] | None) -> list[str]:
    """The user's settings, without a method or a seed; ``stream=X`` is ``stream.name=X``."""
    from holdfast.core.config import given_overrides

    settings = []
    for override in given_overrides(overrides or []):
        key = override.partition("=")[0]
        if key in ("method", "seed"):
            raise HoldfastError(f"{override}: the study sets {key} itself; use its own options")
        settings.append(re.sub("^stream=", "stream.name=", override))
    return settings


def directory(out: Path | None, *, dry_run: bool) -> Path:
    """The study's directory; HoldfastError if it is missing, except in a dry run."""
    if out is None and not dry_run:
        raise HoldfastError("a study needs a directory for its results; add --out DIR")
    return out or Path("study")


def slurm_parameters(kind: Kind, lines: list[str] | None) -> SlurmParameters | None:
    """What each job asks of Slurm, of lines ``KEY=VALUE``; None with another executor."""
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
    """The executor; HoldfastError if it is not installed or its cluster cannot be reached."""
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
    if per_gpu > 1 and not gpus:
        raise HoldfastError("--workers-per-gpu is for GPUs, and no cell uses one; use --workers")
    return LocalExecutor(workers, devices=gpus, workers_per_gpu=per_gpu, threads=threads)
