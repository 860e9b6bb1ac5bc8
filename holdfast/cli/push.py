"""`holdfast push` and `holdfast pull`: a memory on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from holdfast.cli.fetch import fetch_bars
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
        from holdfast.exports.push import check_repository
        from holdfast.exports.sharing import push_memory
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
        from holdfast.exports.push import check_repository
        from holdfast.exports.sharing import pull_memory
        from holdfast.streams.item import counted

    check_repository(repository)
    with fetch_bars() as report:
        pulled = pull_memory(repository, memory, revision, report)
    facts, lessons = counted(len(pulled.facts), "fact"), counted(pulled.horizon, "lesson")
    print(f"{facts} in {lessons}, of {pulled.model}")
    print(memory)
