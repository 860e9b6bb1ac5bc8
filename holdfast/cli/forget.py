"""`holdfast forget`: take facts out of a memory."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from holdfast.cli.fetch import opened_memory
from holdfast.cli.printing import json_line
from holdfast.cli.progress import WorkBars, loading
from holdfast.cli.verbs import MemoryPath
from holdfast.core.errors import HoldfastError
from holdfast.memory.record import require_memory

if TYPE_CHECKING:
    from holdfast.memory.forgetting import Forgetting
    from holdfast.memory.memory import Memory


def forget(
    memory: MemoryPath,
    questions: Annotated[
        list[str] | None, Argument(metavar="[QUESTION]...", help="As they were taught.")
    ] = None,
    task: Annotated[
        str | None, Option(metavar="NAME", help="All facts of this batch of the list.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would go, and change nothing.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Forget facts: they leave the list, and their lessons are learned again without them.

    What was exported or copied before still has them.
    """
    require_memory(memory)
    with loading():
        from holdfast.memory.forgetting import forget as forget_facts
        from holdfast.memory.forgetting import what_goes
        from holdfast.memory.memory import Memory

    opened = Memory(memory) if dry_run else opened_memory(memory)
    wanted = [*(questions or ()), *(() if task is None else _facts_of(opened, task))]
    if not wanted:
        raise HoldfastError("nothing to forget; give a QUESTION as it was taught, or --task NAME")
    if dry_run:
        found = what_goes(opened, wanted)
    else:
        with WorkBars() as report:
            found = forget_facts(opened, wanted, report)
    if as_json:
        print(json_line(asdict(found)))
    else:
        _show(found, dry_run=dry_run)


def _facts_of(memory: Memory, name: str) -> list[str]:
    """The questions of the facts of a batch."""
    batch = next((one for one in memory.tasks if one.name == name), None)
    if batch is None:
        raise HoldfastError(
            f"--task: {memory.directory} has no batch {name!r:.60}; "
            f"holdfast lessons {memory.directory} lists them"
        )
    here = {item.question for item in batch.items}
    return [fact.question for fact in memory.facts if fact.question in here]


def _show(found: Forgetting, *, dry_run: bool) -> None:
    for fact in found.facts:
        print(f"{'would forget' if dry_run else 'forgot'}: {fact.question} ({fact.answer})")
        shown = [("before", fact.before), ("now", fact.after), ("untouched model", fact.untouched)]
        if fact.before is not None:
            texts = (f"{when} {value:.2g}" for when, value in shown if value is not None)
            print(f"  probability of the answer: {', '.join(texts)}")
    if found.lessons:
        count = f"{len(found.lessons)} lesson{'' if len(found.lessons) == 1 else 's'}"
        others = f"{found.others} other fact{'' if found.others == 1 else 's'}"
        if dry_run:
            print(f"{count} would be learned again, with {others}")
        else:
            print(f"{count} learned again: {found.answered} of {others} answered from the weights")
