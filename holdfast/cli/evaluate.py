"""`holdfast evaluate`: what a memory knows, keeps and costs, beside its weights and its list."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.chat.evaluation.result import MemoryEvaluation


def evaluate(
    memory: Annotated[
        Path, typer.Argument(metavar="MEMORY", help="Directory of a memory on a chat model.")
    ],
    probes: Annotated[
        Path | None,
        typer.Option("--probes", help="JSON lines with further questions about taught facts."),
    ] = None,
    everyday: Annotated[
        Path | None,
        typer.Option("--everyday", help="JSON lines {question, answers}; 240 come along."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Questions of each kind at most.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the numbers, a picture and all answers."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Measure a memory: recall, other wordings, what else is kept, costs.

    With --out the same command continues where it was stopped.
    """
    from holdfast.memory.chat.record import is_chat_memory
    from holdfast.streams.batches import FACTS_FILE

    if not is_chat_memory(memory):
        other = (memory / FACTS_FILE).is_file()
        raise HoldfastError(
            f"{memory}: is a memory on the embedded model, and only one on a chat model is "
            "evaluated; teach its facts.jsonl to a new memory"
            if other
            else f"{memory}: is no memory; holdfast learn {memory} FACTS makes one"
        )
    found = _measured(memory, probes, everyday, limit, out)
    if as_json:
        print(found.text())
    else:
        _print_table(found)
    if out is not None:
        from holdfast.report.evaluation_bars import plot_evaluation
        from holdfast.report.figures import save

        save(plot_evaluation(found.values()), out / "evaluation")
        if not as_json:
            print(out)


def _measured(
    directory: Path, probes: Path | None, everyday: Path | None, limit: int | None, out: Path | None
) -> MemoryEvaluation:
    from holdfast.cli.chat_memory import WorkBars, opened_memory
    from holdfast.cli.progress import loading

    with loading():
        from holdfast.memory.chat.evaluation import result
        from holdfast.memory.chat.evaluation.measure import evaluate as measure
        from holdfast.memory.chat.evaluation.probes import (
            everyday_questions,
            probes_of,
            with_probes,
        )

    memory = opened_memory(directory, "smollm2")
    asked = probes_of(memory.learned)
    if probes is not None:
        asked = with_probes(asked, probes)
    common = everyday_questions(everyday)
    with loading(f"loading {memory.model}"):
        memory.load()
    kept = 0

    def keep(evaluation: MemoryEvaluation, answers: list[dict[str, Any]]) -> None:
        nonlocal kept
        if out is not None:
            result.write_evaluation(evaluation, answers, out)
            kept = len(evaluation.stages)

    def before(identity: str) -> MemoryEvaluation | None:
        return None if out is None else result.read_evaluation(out, identity)

    try:
        with WorkBars() as report:
            return measure(memory, asked, common, limit, report, before, keep)
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{kept} measures are kept in {out}" if out else "nothing is kept without --out DIR"
        )
        raise


def _print_table(evaluation: MemoryEvaluation) -> None:
    from rich.table import Table

    from holdfast.cli.printing import SafeConsole
    from holdfast.memory.chat.evaluation.telling import about_lines, notes, table_rows

    print("\n".join(about_lines(evaluation)))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("", "of", "memory", "weights", "list"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=bool(heading))
    for row in table_rows(evaluation):
        table.add_row(*row)
    SafeConsole(highlight=False).print(table)
    for line in notes(evaluation):
        print(line)
