"""`holdfast search`: task-level successive halving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from holdfast.cli import study
from holdfast.cli.progress import loading
from holdfast.cli.report import write_report
from holdfast.cli.run import Track, configuration, dataset_of, refuse_unknown_tracker
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.studies.search import Search, Standing

_SHOWN = 10


def search(
    config: Annotated[str, Argument(help="A search's recipe or a YAML file.")],
    overrides: study.Overrides = None,
    out: study.Out = None,
    store: study.Store = None,
    workers: study.Workers = None,
    workers_per_gpu: study.WorkersPerGpu = 1,
    threads: study.Threads = None,
    kind: study.ExecutorName = "local",
    ray_address: study.RayAddress = None,
    slurm: study.Slurm = None,
    track: Track = None,
    dry_run: study.DryRun = False,
) -> None:
    """Learn a few tasks with every candidate, keep the best, let them learn more.

    The same command continues where it was stopped.
    """
    from holdfast.core.config import build

    values = study.recipe_values("search", config)
    settings = study.own_settings(overrides)
    jobs = study.slurm_parameters(kind, slurm)
    refuse_unknown_tracker(track)
    with loading():
        from holdfast.studies.recipe import SearchRecipe
        from holdfast.studies.search import Search

        recipe = build(SearchRecipe, values, source=f"search {config}")
        base = configuration(recipe.base, dataset_of([*recipe.overrides, *settings]))
        place = study.directory(out, dry_run=dry_run)
        plan = Search(recipe, base, settings, place, store)
    if dry_run:
        _print_funnel(plan)
        return
    cost = recipe.schedule.cost(len(plan.candidates)) * len(recipe.seeds)
    from holdfast.cli.study_table import watching
    from holdfast.learning.task_lines import duration

    workforce = study.executor(
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
