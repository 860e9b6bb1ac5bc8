"""`holdfast forget`: take facts out of a memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    from holdfast.streams import Item

_MOST = 5
_MOST_KEYS = 12


def forget(
    memory: MemoryPath,
    questions: Annotated[
        list[str] | None, Argument(metavar="[QUESTION]...", help="As they were taught.")
    ] = None,
    task: Annotated[
        str | None, Option(metavar="NAME", help="All facts of this batch of the list.")
    ] = None,
    where: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="All facts that came with this value; every one holds."),
    ] = None,
    corrected: Annotated[
        bool, Option("--corrected", help="The former answers of all facts that were corrected.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would go, and change nothing.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Forget facts: they leave the list, and their lessons are learned again without them.

    With --corrected, only former answers go. What was exported or copied before still has them.
    """
    require_memory(memory)
    if corrected and (questions or task is not None or where):
        raise HoldfastError(
            "--corrected is for all that was corrected; leave out QUESTION, --task and --where"
        )
    with loading():
        from holdfast.memory.forgetting import forget as forget_facts
        from holdfast.memory.forgetting import what_goes
        from holdfast.memory.memory import Memory

    opened = Memory(memory) if dry_run else opened_memory(memory)
    questions_to_forget = [*(questions or ())]
    if task is not None or where:
        questions_to_forget += _chosen(opened, task, where or ())
    if not (questions_to_forget or corrected):
        raise HoldfastError(
            "nothing to forget; give a QUESTION as it was taught, --task NAME, --where KEY=VALUE, "
            "or --corrected"
        )
    if dry_run:
        forgetting = what_goes(opened, questions_to_forget, corrected=corrected)
    else:
        try:
            with WorkBars() as report:
                forgetting = forget_facts(opened, questions_to_forget, report, corrected=corrected)
        except HoldfastError as error:
            if as_json:  # so that another process knows the kind of mistake
                print(json_line({"code": error.code}))
            raise
    if as_json:
        print(json_line(asdict(forgetting)))
    elif corrected and not forgetting.facts:
        print("no former answer is on its list of facts")
    else:
        _show(forgetting, dry_run=dry_run)


def _chosen(memory: Memory, task: str | None, where: Sequence[str]) -> list[str]:
    """The questions of all facts, or of the batch ``task``, that have every value of ``where``.

    A corrected fact has the values of all its versions, since its former answers are still on file.
    """
    from holdfast.builders.documents import is_page_of
    from holdfast.streams.batches import fact_key, is_wording

    facts = list(memory.facts)
    versions: dict[str, list[Item]] = {}
    for batch in memory.tasks:
        for item in batch.items:
            versions.setdefault(fact_key(item), []).append(item)
    if task is not None:
        named = next((batch for batch in memory.tasks if batch.name == task), None)
        if named is None:
            raise HoldfastError(
                f"--task: {memory.directory} has no batch {task!r:.60}; "
                f"holdfast lessons {memory.directory} lists them"
            )
        # A wording alone may have come later than its fact, which is another batch's then.
        keys = {fact_key(item) for item in named.items if not is_wording(item)}
        facts = [fact for fact in facts if fact_key(fact) in keys]
    for text in where:
        key, equals, value = text.partition("=")
        if not equals:
            raise HoldfastError(f"--where {text!r:.60}: give KEY=VALUE, as in --where source=notes")
        chosen = []
        values: set[str] = set()  # of all facts that are left
        for fact in facts:
            had = _values(versions[fact_key(fact)], key)
            values |= had
            if value in had or (key == "source" and any(is_page_of(page, value) for page in had)):
                chosen.append(fact)
        if not chosen:
            hint = _hint(key, facts, sorted(values))
            raise HoldfastError(f"--where {text!r:.60}: no such fact; {hint}")
        facts = chosen
    return [fact.question for fact in facts]


def _values(versions: Sequence[Item], key: str) -> set[str]:
    """The values that a fact's versions have under a key, as text; of a list, each part."""
    values = set()
    for item in versions:
        value = item.id if key == "id" else item.details.get(key)
        parts = value if isinstance(value, list) else [] if value is None else [value]
        values |= {part if isinstance(part, str) else json.dumps(part) for part in parts}
    return values


def _hint(key: str, facts: Sequence[Item], values: Sequence[str]) -> str:
    if values:
        return f"they have {key} {'; '.join(values[:_MOST])}{'; ...' * (len(values) > _MOST)}"
    keys = sorted({key for fact in facts for key in fact.details})
    if not keys:
        return "they came with no such values"
    return f"they have {', '.join(keys[:_MOST_KEYS])}{', ...' * (len(keys) > _MOST_KEYS)}"


def _show(outcome: Forgetting, *, dry_run: bool) -> None:
    from holdfast.streams.item import counted

    if not outcome.facts:
        print("forgotten already, by a command that was stopped; nothing of it is left now")
    for fact in outcome.facts:
        print(f"{'would forget' if dry_run else 'forgot'}: {fact.question} ({fact.answer})")
        values = {"before": fact.before, "now": fact.after, "untouched model": fact.untouched}
        if fact.before is not None:
            texts = (f"{when} {value:.2g}" for when, value in values.items() if value is not None)
            print(f"  probability of the answer: {', '.join(texts)}")
    for question in outcome.twins:
        print(f"stays: {question}, which may answer it, and differs in case or punctuation alone")
    if outcome.lessons:
        count = counted(len(outcome.lessons), "lesson")
        others = counted(outcome.others, "other fact")
        if not outcome.others:
            print(f"{count} {'would go' if dry_run else 'gone'}: nothing else was in it")
        elif dry_run:
            print(f"{count} would be learned again, with {others}")
        else:
            answered = f"{outcome.answered} of {others} answered from the weights"
            print(f"{count} learned again: {answered}")
