"""`holdfast search`: task-level successive halving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from holdfast.cli import study
from holdfast.cli.progress import loading
from holdfast.cli.report import write_report
from holdfast.cli.run import Track, configuration, dataset_of, refuse_unknown_tracker
from holdfast.cli.verbs import Overrides
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.studies.search import Search, Standing

_MOST = 10


def search(
    config: Annotated[str, Argument(help="A search's recipe or a YAML file.")],
    overrides: Overrides = None,
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
    settings = study.cell_settings(overrides)
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
