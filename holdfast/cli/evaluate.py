"""`holdfast evaluate` and `evaluate-edits`: what a memory knows and costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from holdfast.cli.fetch import opened_memory
from holdfast.cli.learn import model_of
from holdfast.cli.printing import json_line, print_table
from holdfast.cli.progress import WorkBars, loading
from holdfast.cli.verbs import Everyday, MemoryPath
from holdfast.memory.record import require_memory

if TYPE_CHECKING:
    from holdfast.memory.evaluation.result import MemoryEvaluation


def evaluate(
    memory: MemoryPath,
    probes: Annotated[
        Path | None, Option(help="JSON lines with further questions about taught facts.")
    ] = None,
    everyday: Everyday = None,
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
    with loading():
        from holdfast.memory.evaluation.measure import evaluate as measure
        from holdfast.memory.evaluation.probes import everyday_questions, probes_of, with_probes

    opened = opened_memory(memory)
    questions = probes_of(opened.learned)
    if probes is not None:
        questions = with_probes(questions, probes)
    common = everyday_questions(everyday)
    with loading(f"loading {opened.model}"):
        opened.load()

    with WorkBars() as report:
        evaluation = measure(opened, questions, common, limit, report, out)
    _print(evaluation, as_json=as_json)
    if out is not None:
        from holdfast.report.bars import plot_evaluation
        from holdfast.report.figures import save

        save(plot_evaluation(evaluation.values()), out / "evaluation")
        if not as_json:
            print(out)


def evaluate_edits(
    memory: MemoryPath,
    edits: Annotated[
        Path,
        Argument(
            metavar="EDITS",
            help="A file of CounterFact, zsRE, MQuAKE or KnowEdit, or ParaRel's folder.",
        ),
    ],
    limit: Annotated[
        int | None, Option(min=1, help="Cases from the first; of ParaRel how many are drawn.")
    ] = None,
    seed: Annotated[
        int | None, Option(min=0, help="Of the draw from ParaRel.", show_default="0")
    ] = None,
    everyday: Everyday = None,
    model: Annotated[str | None, Option(help="Of a new memory.", show_default="smollm2")] = None,
    out: Annotated[Path | None, Option(help="Folder for the numbers and all answers.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Teach a new memory a set of edits, and measure it as editors are, by real generation.

    A memory that exists must have learned them already. The same command continues.
    """
    with loading():
        from holdfast.memory.evaluation.edits import LABELS, read_edits
        from holdfast.memory.evaluation.edits import evaluate_edits as measure
        from holdfast.memory.evaluation.probes import everyday_questions

    edited, common = read_edits(edits, limit, seed), everyday_questions(everyday)
    opened = opened_memory(memory, model_of(memory, model), load=True)
    # A killed command left none or all edits on file; learn those that are not learned yet.
    if not opened.tasks or opened.horizon < len(opened.tasks):
        with WorkBars() as report:
            opened.learn(edited.stream(), report=report)

    with WorkBars() as report:
        evaluation = measure(opened, edited, common, report, out)
    _print(evaluation, LABELS, f"{edited.name}: ", as_json=as_json)
    if out is not None and not as_json:
        print(out)


def _print(
    evaluation: MemoryEvaluation,
    labels: Sequence[tuple[str, str, str]] | None = None,
    title: str = "",
    *,
    as_json: bool,
) -> None:
    from holdfast.memory.evaluation import result

    if as_json:
        print(json_line(evaluation.values()))
        return
    print(title + result.about_line(evaluation))
    rows = result.table_rows(evaluation, labels or result.LABELS)
    print_table(["", "of", "memory", "weights", "list"], rows)
    print("\n".join(result.notes(evaluation)))
