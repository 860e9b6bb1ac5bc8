"""`holdfast demo`: one small model learns a stream with three methods; a real one ten facts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.recipes import recipe
from holdfast.results import RecallMatrix, diagonal, final

NAIVE = "vanilla"
# Many small tasks, so that the three methods differ within a minute.
STREAM = ("stream.tasks=16", "stream.items_per_task=8", "evaluation.rows=4")
REPLAY = ("sampling.samples=200", "sampling.max_new_tokens=24")
LEAST_RATIO = 5.0
LEAST_DIAG = 0.95


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to keep the three runs.")] = Path(
        "runs/comparison"
    ),
    tasks: Annotated[int | None, typer.Option("--tasks", help="Learn only so many tasks.")] = None,
) -> None:
    """Compare naive fine-tuning, a composition of the paper's and the lasting one.

    Then a real chat model, where it can be had, is taught ten facts and asked.
    """
    from holdfast.cli.demo_memory import show_memory
    from holdfast.cli.progress import loading, showing
    from holdfast.cli.report import write_report
    from holdfast.cli.summary import LearnedRun, matrix_text, print_summary

    with loading():
        from holdfast.learning.config import RunConfig
        from holdfast.learning.trajectory import Trajectory
        from holdfast.report.figures import save
        from holdfast.report.matrices import plot_comparison

        naive = RunConfig.of(recipe("demo"), [f"method={NAIVE}", *STREAM])
        composed = RunConfig.of(recipe("demo"), [*STREAM, *REPLAY])
        lasting = RunConfig.of(recipe("lasting"), STREAM)
    learned: dict[str, LearnedRun] = {}
    for config in (naive, composed, lasting):
        method = config.method
        trajectory = Trajectory(config, out / method)
        whole = len(trajectory.stream.tasks)
        horizon = whole if tasks is None else tasks
        with showing(method, trajectory.horizon, horizon, out / method) as progress:
            matrix = trajectory.advance(tasks, progress)
        # An interrupted demo may have got further with one method; show all to the same horizon.
        learned[method] = LearnedRun(matrix.up_to(horizon), out / method)
    matrices = {method: one.matrix for method, one in learned.items()}
    for method, matrix in matrices.items():
        print(f"\n{method}: recall in per cent\n{matrix_text(matrix)}")
    print_summary(learned)
    written = save(plot_comparison(matrices), out / "demo")
    print(f"figures: {', '.join(map(str, written))}")
    print(f"report: {write_report(out)}")
    print(f"kept in {out}; to start afresh, remove that directory")
    show_memory(out.with_name(f"{out.name}-memory"))
    if horizon < whole:
        print(f"acceptance: judged after all {whole} tasks only")
    elif not _accepted(*(matrices[one.method] for one in (naive, composed, lasting))):
        raise typer.Exit(1)


def _accepted(naive: RecallMatrix, composed: RecallMatrix, lasting: RecallMatrix) -> bool:
    """Print the acceptance criterion; return whether it is met."""
    before, between, after = final(naive), final(composed), final(lasting)
    ratio = after / before if before else float("inf")
    diag = min(map(diagonal, (naive, composed, lasting)))
    met = ratio >= LEAST_RATIO and after > between > before and diag >= LEAST_DIAG
    print(
        f"acceptance: {'met' if met else 'not met'}: lasting / naive final retention = "
        f"{after:.3f} / {before:.3f} = {ratio:.2f}x (at least {LEAST_RATIO:g}x), composed "
        f"{between:.3f} between them, lowest Diag = {diag:.3f} (at least {LEAST_DIAG})"
    )
    return met
