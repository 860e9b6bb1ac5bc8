"""`holdfast suite`: many methods, each with every seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import study
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.studies.recipe import SuiteRecipe


def suite(
    config: Annotated[str, typer.Argument(help="A suite's recipe or a YAML file.")],
    overrides: study.Overrides = None,
    out: study.Out = None,
    methods: Annotated[
        str | None, typer.Option("--methods", help="Only these tags, such as vanilla,replay_merge.")
    ] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Only these, such as 41,42.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Which of the suite's data sets it is.")
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
    dry_run: study.DryRun = False,
) -> None:
    """Learn a stream with many methods and seeds; the same command continues."""
    from holdfast.cli.progress import loading
    from holdfast.cli.run import configuration
    from holdfast.core.config import build

    values = study.recipe_values("suite", config)
    settings = study.own_settings(overrides)
    with loading():
        from holdfast.studies.recipe import SuiteRecipe
        from holdfast.studies.suite import Suite

        recipe = build(SuiteRecipe, values, source=f"suite {config}")
        base = configuration(recipe.base)
        chosen = _dataset(recipe, dataset, [*_stream_of(base), *settings])
        plan = Suite(
            _methods(recipe.methods_on(chosen), methods),
            _seeds(recipe.seeds, seeds),
            base,
            [*recipe.overrides(chosen), *settings],
            Path("suite") if out is None and dry_run else study.directory(out),
            store,
            tasks,
        )
    if dry_run:
        print("\n".join(f"{cell.config.method} {cell.config.seed}" for cell in plan.cells))
        print(f"{len(plan.cells)} cells of {plan.horizon} tasks of {plan.stream.name}")
        return
    from holdfast.cli.report import write_report
    from holdfast.cli.study_table import watching

    workforce = study.executor(
        executor, ray_address, workers, workers_per_gpu, threads, plan.device
    )
    with watching("suite", len(plan.cells) * plan.horizon) as watch:
        rows = plan.run(workforce, watch)
    _print_rows(rows)
    failed = sum(row["error"] is not None for row in rows)
    if failed < len(rows):
        print(f"report: {write_report(plan.directory)}")
    print(plan.directory)
    if failed:
        raise HoldfastError(
            f"{failed} of {len(rows)} cells failed, as said above; repeat the command to try again"
        )


def _dataset(recipe: SuiteRecipe, named: str | None, overrides: list[str]) -> str | None:
    """The data set's name: as given, or that of the stream."""
    if named is not None or not recipe.datasets:
        return named
    streams = [text.partition("=")[2] for text in overrides if text.startswith("stream.name=")]
    stream = streams[-1] if streams else ""
    name = Path(stream).name
    if name not in recipe.datasets:
        raise HoldfastError(
            f"{stream}: which data set is it? add --dataset {'|'.join(recipe.datasets)}"
        )
    return name


def _stream_of(base: dict[str, Any]) -> list[str]:
    section = base.get("stream")
    return [f"stream.name={section['name']}"] if section and "name" in section else []


def _methods(known: Sequence[str], chosen: str | None) -> list[str]:
    from holdfast.learning.method import parse_method

    if chosen is None:
        return list(known)
    return list(dict.fromkeys(parse_method(tag.strip()).tag for tag in chosen.split(",")))


def _seeds(known: Sequence[int], chosen: str | None) -> list[int]:
    if chosen is None:
        return list(known)
    try:
        return list(dict.fromkeys(int(seed) for seed in chosen.split(",")))
    except ValueError:
        raise HoldfastError(f"--seeds {chosen}: write whole numbers, such as 41,42") from None


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    from holdfast.studies.suite import summary

    print(f"{'method':<22}{'seeds':>6}{'Final':>8}{'+-':>7}{'Diag':>7}{'Forget':>8}{'W(10)':>7}")
    for line in summary(rows):
        numbers = (line["final"], line["final_sd"], line["diag"], line["forget"], line["w10"])
        cells = [f"{value:.3f}" if value is not None else "" for value in numbers]
        print(
            f"{line['method']:<22}{line['seeds']:>6}{cells[0]:>8}{cells[1]:>7}{cells[2]:>7}"
            f"{cells[3]:>8}{cells[4]:>7}"
        )
    for row in (row for row in rows if row["error"] is not None):
        print(f"failed: {row['method']}, seed {row['seed']}: {row['error']}")
