"""`holdfast suite`: many methods, each with every seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from holdfast.cli import study
from holdfast.cli.progress import loading
from holdfast.cli.report import write_report
from holdfast.cli.run import Tasks, Track, configuration, dataset_of, refuse_unknown_tracker
from holdfast.cli.verbs import Overrides
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.learning.config import RunConfig


def suite(
    config: Annotated[str | None, Argument(help="A suite's recipe or a YAML file.")] = None,
    overrides: Overrides = None,
    out: study.Out = None,
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
    store: study.Store = None,
    workers: study.Workers = None,
    workers_per_gpu: study.WorkersPerGpu = 1,
    threads: study.Threads = None,
    executor: study.ExecutorName = "local",
    ray_address: study.RayAddress = None,
    slurm: study.Slurm = None,
    track: Track = None,
    dry_run: study.DryRun = False,
) -> None:
    """Learn a stream with many methods and seeds; the same command continues."""
    if from_search is not None and config is not None and "=" in config:
        overrides, config = [config, *(overrides or [])], None
    settings = study.cell_settings(overrides)
    jobs = study.slurm_parameters(executor, slurm)
    refuse_unknown_tracker(track)
    with loading():
        from holdfast.studies.suite import Suite

        swept: list[str] = []
        if from_search is None:
            configs, swept = _of_recipe(config, settings, methods, seeds, dataset, grid)
        else:
            _refuse_beside_search(config, dataset, grid)
            from holdfast.studies.search import SEEDS, finalists

            configs = finalists(from_search, settings, _seeds(seeds) or SEEDS, _methods(methods))
        place = study.directory(out, dry_run=dry_run)
        plan = Suite(configs, place, store, tasks, from_search, swept)
    if dry_run:
        print("\n".join(f"{cell.candidate} seed {cell.config.seed}" for cell in plan.cells))
        print(f"{len(plan.cells)} cells of {plan.horizon} tasks of {plan.stream.name}")
        return
    from holdfast.cli.study_table import watching

    workforce = study.executor(
        executor, ray_address, workers, workers_per_gpu, threads, plan.device, place, jobs
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
    """The configurations of a recipe, and the settings that its grid or --grid varies."""
    from holdfast.core.config import build
    from holdfast.studies.recipe import SuiteRecipe
    from holdfast.studies.suite import configurations

    if config is None:
        raise HoldfastError("which suite? name a recipe, a YAML file, or --from-search DIR")
    values = study.recipe_values("suite", config)
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


def _methods(chosen: str | None) -> list[str] | None:
    from holdfast.learning.method import parse_method

    if chosen is None:
        return None
    return list(dict.fromkeys(parse_method(tag.strip()).tag for tag in chosen.split(",")))


def _seeds(chosen: str | None) -> list[int] | None:
    if chosen is None:
        return None
    try:
        return list(dict.fromkeys(int(seed) for seed in chosen.split(",")))
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
