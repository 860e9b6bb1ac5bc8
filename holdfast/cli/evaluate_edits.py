"""`holdfast evaluate-edits`: measure a memory as editors of models are measured."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from holdfast.cli.evaluate import evaluate_in_stages
from holdfast.cli.fetch import opened_memory
from holdfast.cli.learn import model_of
from holdfast.cli.printing import json_line, print_table
from holdfast.cli.progress import WorkBars, loading
from holdfast.cli.verbs import MemoryPath
from holdfast.memory.record import is_memory


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
    seed: Annotated[int, Option(min=0, help="Of the draw from ParaRel.")] = 0,
    everyday: Annotated[
        Path | None, Option(help="JSON lines {question, answers}; 240 come along.")
    ] = None,
    model: Annotated[str | None, Option(help="Of a new memory.", show_default="smollm2")] = None,
    out: Annotated[Path | None, Option(help="Folder for the numbers and all answers.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Teach a new memory a set of edits, and measure it as editors are, by real generation.

    A memory that exists must have learned them already. The same command continues.
    """
    with loading():
        from holdfast.memory.evaluation.edit_sets import read_edits
        from holdfast.memory.evaluation.edits import LABELS
        from holdfast.memory.evaluation.edits import evaluate_edits as measure
        from holdfast.memory.evaluation.probes import everyday_questions
        from holdfast.memory.evaluation.table import about_line, notes, table_rows

    edited, common = read_edits(edits, limit, seed), everyday_questions(everyday)
    fresh = not is_memory(memory)
    opened = opened_memory(memory, model_of(memory, model), load=True)
    # A killed command left all edits on file; learn those that are not learned yet.
    if fresh or opened.horizon < len(opened.tasks):
        with WorkBars() as report:
            opened.learn(edited.stream(), report=report)

    evaluation = evaluate_in_stages(out, partial(measure, opened, edited, common))
    if as_json:
        print(json_line(evaluation.values()))
        return
    print(f"{edited.name}: {about_line(evaluation)}")
    print_table(["", "of", "memory", "weights", "list"], table_rows(evaluation, LABELS))
    print("\n".join(notes(evaluation)))
    if out is not None:
        print(out)
