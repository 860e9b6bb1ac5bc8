"""`holdfast lessons`: the lessons of a memory, and which of them are learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.chat.states import LessonState


def lessons(
    memory: Annotated[Path, typer.Argument(metavar="MEMORY", help="Its directory.")],
    cancel: Annotated[
        str | None,
        typer.Option(
            "--cancel",
            metavar="WHICH",
            help="Cancel lessons that are not learned: a number, a range like 3-9, or all. The "
            "later ones move up.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each lesson.")
    ] = False,
) -> None:
    """List the lessons of a memory: learned, being learned, waiting, or failed and why."""
    from holdfast.memory.chat.states import state_values
    from holdfast.memory.queue import cancel_lessons

    states = _states(memory) if cancel is None else cancel_lessons(memory, _numbers(cancel))
    for state in states:
        if as_json:
            print(json.dumps(state_values(state), ensure_ascii=False))
        else:
            print(("cancelled " if cancel else "") + state_line(memory, state))


def _states(memory: Path) -> list[LessonState]:
    """The state of every lesson; of a memory on the embedded model as it recalls them now."""
    from holdfast.memory.chat.record import is_chat_memory
    from holdfast.memory.chat.states import lesson_states
    from holdfast.streams.batches import FACTS_FILE

    if is_chat_memory(memory):
        return lesson_states(memory)
    if not (memory / FACTS_FILE).exists():
        raise HoldfastError(f"{memory}: is no memory; holdfast learn {memory} FACTS makes one")
    from holdfast.memory.batch_states import batch_states
    from holdfast.memory.memory import Memory

    return batch_states(Memory(memory))


def _numbers(which: str) -> range | None:
    """The lessons of ``--cancel``; None for all that are not learned."""
    if which == "all":
        return None
    first, dash, last = which.partition("-")
    numbers = (first, last if dash else first)
    if all(one.isascii() and one.isdecimal() for one in numbers) and int(first) <= int(numbers[1]):
        return range(int(first), int(numbers[1]) + 1)
    raise HoldfastError(f"--cancel: {which!r:.40} is no lesson; give 3, 3-9 or all")


def state_line(memory: Path, state: LessonState) -> str:
    """A line on a lesson."""
    from holdfast.streams.item import quoted

    count = f"{state.facts} fact{'' if state.facts == 1 else 's'}"
    named = f"lesson {state.number}"
    if state.name != str(state.number):
        named += f" {quoted(state.name)}"
    told = {
        "learned": f"learned, {state.learned} of {count} answered from the weights",
        "learning": f"learning, {state.learned} of {count} so far",
        "waiting": f"waiting, {count}",
        "failed": f"failed: {state.reason}; holdfast learn {memory} tries again",
    }
    return f"{named}: {told[state.state]}"
