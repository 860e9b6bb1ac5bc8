"""`holdfast evaluate`: what a memory knows and costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from holdfast.cli.fetch import opened_memory
from holdfast.cli.printing import json_line, print_table
from holdfast.cli.progress import WorkBars, loading
from holdfast.cli.verbs import MemoryPath
from holdfast.memory.record import require_memory

if TYPE_CHECKING:
    from holdfast.memory.evaluation.result import MemoryEvaluation

    Before = Callable[[str], MemoryEvaluation | None]
    Keep = Callable[[MemoryEvaluation, list[dict[str, Any]]], None]


def evaluate(
    memory: MemoryPath,
    probes: Annotated[
        Path | None, Option(help="JSON lines with further questions about taught facts.")
    ] = None,
    everyday: Annotated[
        Path | None, Option(help="JSON lines {question, answers}; 240 come along.")
    ] = None,
    limit: Annotated[int | None, Option(min=1, help="Questions of each kind at most.")] = None,
    out: Annotated[
        Path | None, Option(help="Folder for the numbers, a picture and all answers.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Measure a memory: recall, other wordings, what else is kept, costs.

    With --out the same command continues where it was stopped.
    """
    require_memory(memory)
    evaluation = _measured(memory, probes, everyday, limit, out)
    if as_json:
        print(json_line(evaluation.values()))
    else:
        from holdfast.memory.evaluation.table import about_line, notes, table_rows

        print(about_line(evaluation))
        print_table(["", "of", "memory", "weights", "list"], table_rows(evaluation))
        print("\n".join(notes(evaluation)))
    if out is not None:
        from holdfast.report.bars import plot_evaluation
        from holdfast.report.figures import save

        save(plot_evaluation(evaluation.values()), out / "evaluation")
        if not as_json:
            print(out)


def _measured(
    directory: Path, probes: Path | None, everyday: Path | None, limit: int | None, out: Path | None
) -> MemoryEvaluation:
    with loading():
        from holdfast.memory.evaluation.measure import evaluate as measure
        from holdfast.memory.evaluation.probes import everyday_questions, probes_of, with_probes

    memory = opened_memory(directory)
    questions = probes_of(memory.learned)
    if probes is not None:
        questions = with_probes(questions, probes)
    common = everyday_questions(everyday)
    with loading(f"loading {memory.model}"):
        memory.load()

    return evaluate_in_stages(out, partial(measure, memory, questions, common, limit))


def evaluate_in_stages(
    out: Path | None, work: Callable[[WorkBars, Before, Keep], MemoryEvaluation]
) -> MemoryEvaluation:
    """Do an evaluation's work with progress bars; keep each finished stage in ``out``, if given."""
    from holdfast.memory.evaluation import result

    stages = 0

    def keep(evaluation: MemoryEvaluation, answers: list[dict[str, Any]]) -> None:
        nonlocal stages
        if out is not None:
            result.write_evaluation(evaluation, answers, out)
            stages = len(evaluation.stages)

    def before(identity: str) -> MemoryEvaluation | None:
        return None if out is None else result.read_evaluation(out, identity)

    try:
        with WorkBars() as report:
            return work(report, before, keep)
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{stages} measures are kept in {out}" if out else "nothing is kept without --out DIR"
        )
        raise
