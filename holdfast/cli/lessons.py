"""`holdfast lessons`: list or cancel them; `holdfast consolidate`: one adapter for all."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from holdfast.cli.fetch import opened_memory
from holdfast.cli.printing import json_line
from holdfast.cli.progress import WorkBars, loading
from holdfast.cli.verbs import MemoryPath
from holdfast.core.errors import HoldfastError
from holdfast.memory.detached import while_it_runs
from holdfast.memory.record import PROGRESS_OF_ALL, require_memory

if TYPE_CHECKING:
    from holdfast.memory.states import LessonState


def lessons(
    memory: MemoryPath,
    cancel: Annotated[
        str | None,
        Option(
            metavar="WHICH",
            help="Cancel lessons that are not learned: a number, a range like 3-9, or all. The "
            "later ones move up.",
        ),
    ] = None,
    as_json: Annotated[
        bool, Option("--json", help="Print one JSON object for each lesson.")
    ] = False,
) -> None:
    """List the lessons of a memory: learned, being learned, waiting, or failed and why."""
    from holdfast.memory.states import cancel_lessons, lesson_states, state_values

    require_memory(memory)
    states = lesson_states(memory) if cancel is None else cancel_lessons(memory, _numbers(cancel))
    for state in states:
        if as_json:
            print(json_line(state_values(state)))
        else:
            print(("cancelled " if cancel else "") + _state_line(memory, state))


def _numbers(which: str) -> range | None:
    """The lesson numbers that ``--cancel`` names; None for all that are not learned."""
    if which == "all":
        return None
    match = re.fullmatch("([0-9]{1,18})(?:-([0-9]{1,18}))?", which)
    if match and int(match[1]) <= int(match[2] or match[1]):
        return range(int(match[1]), int(match[2] or match[1]) + 1)
    raise HoldfastError(f"--cancel: {which!r:.40} is no lesson; give 3, 3-9 or all")


def _state_line(memory: Path, state: LessonState) -> str:
    from holdfast.streams.item import counted, quoted

    count = counted(state.facts, "fact")
    name = "" if state.name == str(state.number) else f" {quoted(state.name)}"
    words = {
        "learned": f"learned, {state.learned} of {count} answered from the weights",
        "learning": f"learning, {state.learned} of {count} so far",
        "waiting": f"waiting, {count}",
        "failed": f"failed: {state.reason}; holdfast learn {memory} tries again",
    }
    return f"lesson {state.number}{name}: {words[state.state]}"


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
    server: Annotated[int | None, Option(hidden=True)] = None,  # whose end, by a kill too, stops it
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
        with WorkBars() as bars:
            report = bars if server is None else while_it_runs(server, bars)
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
