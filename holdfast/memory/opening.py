"""Open a memory of either kind: on a chat model, or a trajectory of the embedded model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.own import refuse_links
from holdfast.memory.chat.record import is_chat_memory
from holdfast.model.cache import Report, silent
from holdfast.model.fetch import fetch

if TYPE_CHECKING:
    from holdfast.memory.chat.memory import ChatMemory
    from holdfast.memory.memory import Memory

MODEL = "smollm2"  # of a new memory
MODEL_VARIABLE = "HOLDFAST_MODEL"  # the environment variable that names another
EMBEDDED = "embedded"


def open_memory(directory: str | Path) -> Memory | ChatMemory:
    """Open the memory in a directory. Raises HoldfastError where there is none."""
    if is_chat_memory(Path(directory)):
        from holdfast.memory.chat.memory import ChatMemory

        return ChatMemory(directory)
    from holdfast.memory.memory import Memory

    return Memory(directory)


def refuse_linked_parts(directory: Path) -> None:
    """Raise HoldfastError where a part of a memory is a link, behind which nothing is written."""
    if is_chat_memory(directory):
        from holdfast.memory.chat.listing import PARTS
    else:
        from holdfast.learning.state import PARTS
    refuse_links(directory, PARTS)


def refuse_new(directory: Path) -> None:
    """Raise HoldfastError where there is no memory yet; writes nothing."""
    from holdfast.memory.memory import recorded_in

    if not is_chat_memory(directory) and recorded_in(directory) is None:
        raise HoldfastError(
            f"{directory}: no such memory, and --existing makes none; name the one that is there, "
            "or leave --existing out"
        )


def default_model(report: Report = silent) -> tuple[str, str]:
    """The model of a new memory where none is named, and why it is not ``smollm2``, if so.

    ``$HOLDFAST_MODEL``, else ``smollm2`` where it is in the cache or can be fetched, else the
    embedded model.
    """
    if named := os.environ.get(MODEL_VARIABLE):
        return named, ""
    try:
        fetch(MODEL, report)
    except HoldfastError as error:
        return EMBEDDED, str(error)
    return MODEL, ""
