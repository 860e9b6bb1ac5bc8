"""`holdfast merge`: one memory of two."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from holdfast.cli.printing import json_line
from holdfast.cli.progress import loading
from holdfast.memory.record import require_memory


def merge(
    first: Annotated[Path, Argument(metavar="MEMORY", help="Its directory.")],
    second: Annotated[Path, Argument(metavar="OTHER", help="That of the other memory.")],
    out: Annotated[Path, Argument(metavar="OUT", help="A new directory, for the memory of both.")],
    keep: Annotated[
        Literal["first", "second"] | None,
        Option(help="Whose answer counts where they have two to one question."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make one memory of two that were taught to the same model; neither is changed.

    Their lessons stand beside each other, so nothing is learned again.
    """
    for memory in (first, second):
        require_memory(memory)
    with loading():
        from holdfast.memory.memory import Memory
        from holdfast.memory.merging import merge as merge_memories
        from holdfast.streams.item import counted

    merged = merge_memories(Memory(first), Memory(second), out, keep)
    if as_json:
        print(json_line(asdict(merged)))
        return
    print(f"{counted(merged.facts, 'fact')} in {counted(merged.lessons, 'lesson')}")
    if merged.shared:
        print(f"{merged.shared} of them in both")
    if merged.settled:
        print(f"{len(merged.settled)} had another answer there; kept is that of the {keep} memory")
    print(out)
