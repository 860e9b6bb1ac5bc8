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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each lesson.")
    ] = False,
) -> None:
    """List the lessons of a memory: learned, being learned, waiting, or failed and why."""
    from holdfast.memory.chat.record import is_chat_memory
    from holdfast.memory.chat.states import lesson_states, state_values

    if not is_chat_memory(memory):
        raise HoldfastError(
            f"{memory}: is no memory on a chat model; holdfast learn {memory} FACTS makes one"
        )
    for state in lesson_states(memory):
        if as_json:
            print(json.dumps(state_values(state), ensure_ascii=False))
        else:
            print(state_line(memory, state))


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
