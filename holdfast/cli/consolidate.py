"""`holdfast consolidate`: all facts of a memory in one set of weights."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

from typer import Option

from holdfast.cli.fetch import opened_memory
from holdfast.cli.printing import json_line
from holdfast.cli.progress import WorkBars, loading
from holdfast.cli.verbs import MemoryPath
from holdfast.memory.record import PROGRESS_OF_ALL, require_memory


def consolidate(
    memory: MemoryPath,
    neurons: Annotated[
        bool,
        Option(
            "--neurons",
            help="Into neurons, sooner, for an export alone; the lessons' adapters stay.",
        ),
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Learn all facts of a memory at once, into one adapter in place of the lessons'.

    It takes hours on two cores, with --neurons minutes to an hour, and continues after a stop.
    Meanwhile lessons can be learned.
    """
    require_memory(memory)
    with loading():
        from holdfast.memory.consolidation.consolidate import consolidate as learn_all
        from holdfast.memory.consolidation.rehearsal import ConsolidationSettings, NeuronSettings

    opened = opened_memory(memory, load=True)
    try:
        with WorkBars() as report:
            settings = NeuronSettings() if neurons else ConsolidationSettings()
            outcome = learn_all(opened, settings, report)
    except KeyboardInterrupt as stop:
        if (memory / PROGRESS_OF_ALL).exists():
            stop.add_note("what was learned is kept")
        raise
    if as_json:
        print(json_line(asdict(outcome)))
        return
    if not outcome.is_new:
        print("nothing new since it was done before")
    weights = "one set of weights" if outcome.is_new or not outcome.lessons_kept else "the weights"
    print(f"{outcome.answered} of {outcome.facts} facts answered from {weights}")
    if outcome.is_new and not outcome.lessons_kept:
        print(f"holdfast export {memory} OUT --to hf makes a model of them", file=sys.stderr)
    if outcome.lessons_kept:
        lessons = f"{outcome.lessons_kept} of {outcome.lessons} lessons"
        print(f"{lessons} keep their own adapter, which answers more of their facts")
    print(memory)
