"""`holdfast push`, `pull` and `merge`: a memory on the Hugging Face hub, and one of two."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from holdfast.cli.fetch import fetch_bars
from holdfast.cli.printing import json_line
from holdfast.cli.progress import loading
from holdfast.cli.verbs import MemoryPath
from holdfast.memory.record import require_memory

Repository = Annotated[str, Argument(metavar="REPO", help="USER/NAME on the Hugging Face hub.")]


def push(
    memory: MemoryPath,
    repository: Repository,
    public: Annotated[
        bool, Option("--public", help="Make a new repository public; it is private otherwise.")
    ] = False,
    list_facts: Annotated[
        bool, Option("--list-facts", help="Show the facts in the card too.")
    ] = False,
) -> None:
    """Upload a memory, its list of facts included; the card says how many they are.

    What was forgotten stays in the repository's history, if an earlier push had it.
    """
    require_memory(memory)
    with loading():
        from holdfast.exports.sharing import check_repository, push_memory
        from holdfast.memory.memory import Memory

    check_repository(repository)
    with loading(f"uploading {memory} to {repository}"):
        address = push_memory(Memory(memory), repository, public=public, list_facts=list_facts)
    print(address)


def pull(
    repository: Repository,
    memory: Annotated[Path, Argument(metavar="MEMORY", help="A new or an empty directory.")],
    revision: Annotated[str | None, Option(help="A branch, a tag or a commit.")] = None,
) -> None:
    """Download a memory that was pushed."""
    with loading():
        from holdfast.exports.sharing import check_repository, pull_memory
        from holdfast.streams.item import counted

    check_repository(repository)
    with fetch_bars() as report:
        pulled = pull_memory(repository, memory, revision, report)
    facts, lessons = counted(len(pulled.facts), "fact"), counted(pulled.horizon, "lesson")
    print(f"{facts} in {lessons}, of {pulled.model}")
    print(memory)


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
