"""`holdfast demo`: one small model learns ten tasks twice, and the second one remembers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.recipes import recipe

if TYPE_CHECKING:
    from holdfast.learning.trajectory import Trajectory

LEAST_RATIO = 5.0
LEAST_DIAG = 0.95


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to keep both runs.")] = Path(
        "runs/demo"
    ),
    tasks: Annotated[int | None, typer.Option("--tasks", help="Learn only so many tasks.")] = None,
) -> None:
    """Compare naive fine-tuning with the demo recipe's composed method, on the embedded model."""
    from holdfast.cli.progress import showing
    from holdfast.cli.summary import print_summary
    from holdfast.learning.config import RunConfig
    from holdfast.learning.trajectory import Trajectory
    from holdfast.report.figures import comparison, save

    composed = RunConfig.of(recipe("demo"))
    learned: dict[str, Trajectory] = {}
    for method in ("vanilla", composed.method):
        config = RunConfig.of(recipe("demo"), [f"method={method}"])
        trajectory = Trajectory(config, out / method)
        with showing(method) as progress:
            trajectory.advance(tasks, progress)
        learned[method] = trajectory
    print_summary(learned)
    figure = comparison({method: trajectory.matrix for method, trajectory in learned.items()})
    for path in save(figure, out / "demo"):
        print(path)
    print(f"a fresh start: remove {out}")
    if tasks is not None and tasks != composed.stream.tasks:
        print(f"acceptance: judged after {composed.stream.tasks} tasks only")
    elif not _accepted(*learned.values()):
        raise typer.Exit(1)


def _accepted(naive: Trajectory, composed: Trajectory) -> bool:
    """Print the acceptance; whether it is met."""
    before, after = naive.metrics(), composed.metrics()
    ratio = after["final"] / before["final"] if before["final"] else float("inf")
    diag = min(before["diag"], after["diag"])
    met = ratio >= LEAST_RATIO and diag >= LEAST_DIAG
    print(
        f"acceptance: {'met' if met else 'not met'}: composed / naive final retention = "
        f"{after['final']:.3f} / {before['final']:.3f} = {ratio:.1f} (at least {LEAST_RATIO:.0f}), "
        f"lowest Diag = {diag:.3f} (at least {LEAST_DIAG})"
    )
    return met
