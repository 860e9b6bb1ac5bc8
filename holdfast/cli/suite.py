"""`holdfast suite`: many methods, each with every seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import study
from holdfast.cli.track import Track, refuse_unknown_tracker
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.learning.config import RunConfig
    from holdfast.studies.recipe import SuiteRecipe


def suite(
    config: Annotated[
        str | None, typer.Argument(help="A suite's recipe or a YAML file.", show_default=False)
    ] = None,
    overrides: study.Overrides = None,
    out: study.Out = None,
    methods: Annotated[
        str | None, typer.Option("--methods", help="Only these tags, such as vanilla,replay_merge.")
    ] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Only these, such as 41,42.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Which of the suite's data sets it is.")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=[A,B]",
            help="Cross the methods with these values of a setting; may be repeated.",
        ),
    ] = None,
    from_search: Annotated[
        Path | None,
        typer.Option(
            "--from-search",
            metavar="DIR",
            help="Instead of a recipe: a search's best candidate of each allocation rule "
            "(or of each of --methods), with its settings.",
        ),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option("--tasks", help="Stop after so many tasks; all by default.")
    ] = None,
    store: study.Store = None,
    workers: study.Workers = None,
    workers_per_gpu: study.WorkersPerGpu = 1,
    threads: study.Threads = None,
    executor: study.ExecutorName = study.Kind.LOCAL,
    ray_address: study.RayAddress = None,
    slurm: study.Slurm = None,
    track: Track = None,
    dry_run: study.DryRun = False,
) -> None:
    """Learn a stream with many methods and seeds; the same command continues."""
    from holdfast.cli.progress import loading

    if from_search is not None and config is not None and "=" in config:
        overrides, config = [config, *(overrides or [])], None
    settings = study.own_settings(overrides)
    jobs = study.slurm_parameters(executor, slurm)
    refuse_unknown_tracker(track)
    with loading():
        from holdfast.studies.suite import Suite

        swept: list[str] = []
        if from_search is None:
            configs, swept = _of_recipe(config, settings, methods, seeds, dataset, grid)
        else:
            _refuse_beside_search(config, dataset, grid)
            configs = _of_search(from_search, settings, methods, seeds)
        place = Path("suite") if out is None and dry_run else study.directory(out)
        plan = Suite(configs, place, store, tasks, from_search, swept)
    if dry_run:
        print("\n".join(f"{cell.candidate} seed {cell.config.seed}" for cell in plan.cells))
        print(f"{len(plan.cells)} cells of {plan.horizon} tasks of {plan.stream.name}")
        return
    from holdfast.cli.report import write_report
    from holdfast.cli.study_table import watching

    workforce = study.executor(
        executor,
        ray_address,
        workers,
        workers_per_gpu,
        threads,
        plan.device,
        plan.directory,
        jobs,
    )
    with watching("suite", len(plan.cells) * plan.horizon) as watch:
        rows = plan.run(workforce, watch, track)
    _print_rows(rows)
    failed = sum(row["error"] is not None for row in rows)
    if failed < len(rows):
        print(f"report: {write_report(plan.directory)}")
    print(plan.directory)
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
    """The configurations, and the settings in which those of one method may differ."""
    from holdfast.cli.run import configuration, dataset_of
    from holdfast.core.config import build
    from holdfast.studies.recipe import SuiteRecipe
    from holdfast.studies.suite import configurations

    if config is None:
        raise HoldfastError("which suite? name a recipe, a YAML file, or --from-search DIR")
    values = study.recipe_values("suite", config)
    recipe = build(SuiteRecipe, values, source=f"suite {config}")
    streams = [*_stream_of(configuration(recipe.base)), *settings]
    chosen = _dataset(recipe, dataset, streams)
    base = configuration(recipe.base, chosen or dataset_of(streams))
    tags = _methods(methods) or recipe.methods_on(chosen)
    overrides = [*recipe.overrides(chosen), *settings]
    points = {**recipe.grid, **_grid(grid)}
    for setting in settings:  # a setting on the command line has one value
        points.pop(setting.partition("=")[0], None)
    own = _seeds(seeds) or recipe.seeds
    return configurations(tags, own, base, overrides, points), list(points)


def _of_search(
    search: Path, settings: list[str], methods: str | None, seeds: str | None
) -> list[RunConfig]:
    from holdfast.studies.search import SEEDS, finalists

    return finalists(search, settings, _seeds(seeds) or SEEDS, _methods(methods))


def _grid(lines: list[str] | None) -> dict[str, list[Any]]:
    from holdfast.core.config import apply_overrides, build
    from holdfast.studies.recipe import Grid

    values: dict[str, Any] = {}
    for line in lines or []:
        key, _, text = line.partition("=")
        values[key] = apply_overrides({}, [f"value={text}"])["value"]
    return build(Grid, {"grid": values}, source="--grid").grid


def _refuse_beside_search(config: str | None, dataset: str | None, grid: list[str] | None) -> None:
    if config is not None:
        raise HoldfastError(f"{config} and --from-search: choose one, a recipe or a search")
    if dataset is not None:
        raise HoldfastError("--dataset is for recipes; a search is of one data set")
    if grid:
        raise HoldfastError("--grid is for recipes; a search has chosen the settings")


def _dataset(recipe: SuiteRecipe, named: str | None, overrides: list[str]) -> str | None:
    """The data set's name: as given, or that of the stream."""
    if named is not None or not recipe.datasets:
        return named
    from holdfast.cli.run import dataset_of

    name = dataset_of(overrides) or ""
    if name not in recipe.datasets:
        raise HoldfastError(
            f"{name}: which data set is it? add --dataset {'|'.join(recipe.datasets)}"
        )
    return name


def _stream_of(base: dict[str, Any]) -> list[str]:
    section = base.get("stream")
    return [f"stream.name={section['name']}"] if section and "name" in section else []


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
        cells = [f"{value:.3f}" if value is not None else "" for value in numbers]
        print(
            f"{name:<{wide}}{line['seeds']:>6}{cells[0]:>8}{cells[1]:>7}{cells[2]:>7}"
            f"{cells[3]:>8}{cells[4]:>7}"
        )
    for row in (row for row in rows if row["error"] is not None):
        print(f"failed: {row.get('candidate', row['method'])}, seed {row['seed']}: {row['error']}")
