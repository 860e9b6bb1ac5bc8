"""`holdfast diff`: what changed in a memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from holdfast.cli.fetch import opened_memory
from holdfast.cli.printing import json_line
from holdfast.cli.progress import WorkBars, loading
from holdfast.cli.verbs import Everyday, MemoryPath
from holdfast.core.errors import HoldfastError
from holdfast.memory.record import require_memory

if TYPE_CHECKING:
    from holdfast.memory.changes import Changes, WeightsAlone

_MOST = 20  # lines of a kind; --out and --json have all


def diff(
    memory: MemoryPath,
    other: Annotated[
        Path | None, Argument(metavar="[OTHER]", help="A later memory, to compare with.")
    ] = None,
    since: Annotated[
        int | None, Option(min=1, metavar="LESSON", help="What changed after this lesson.")
    ] = None,
    facts_only: Annotated[
        bool, Option("--facts-only", help="Compare the lists; ask nothing.")
    ] = False,
    everyday: Everyday = None,
    limit: Annotated[int | None, Option(min=1, help="Everyday questions at most.")] = None,
    out: Annotated[Path | None, Option(help="Folder for a page with a picture, and JSON.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what changed: facts added, corrected and forgotten, and everyday answers.

    Of two memories, the first is the earlier.
    """
    if (other is None) == (since is None):
        raise HoldfastError("give OTHER, a later memory, or --since LESSON; one of the two")
    if facts_only and (everyday is not None or limit is not None):
        raise HoldfastError("--facts-only asks nothing; leave out --everyday and --limit")
    for directory in filter(None, (memory, other)):
        require_memory(directory)
    with loading():
        from holdfast.memory.changes import after_lesson, now
        from holdfast.memory.changes import changes as compare
        from holdfast.memory.evaluation.probes import everyday_questions
        from holdfast.memory.memory import Memory
        from holdfast.streams.item import evenly

    open_memory = Memory if facts_only else opened_memory
    first = open_memory(memory)
    before = now(first) if since is None else after_lesson(first, since)
    after = now(first if other is None else open_memory(other))
    questions = [] if facts_only else evenly(everyday_questions(everyday), limit)
    with WorkBars() as report:
        changes = compare(before, after, questions, report)
    if out is not None:
        from holdfast.report.pages import write_changes

        write_changes(changes.values(), out)
    if as_json:
        print(json_line(changes.values()))
        return
    print("\n".join(_lines(changes)))
    if out is not None:
        print(out)


def _lines(changes: Changes) -> list[str]:
    facts = changes.facts
    lines = [
        f"{changes.before} -> {changes.after}",
        f"facts: {len(facts.added)} added, {len(facts.corrected)} corrected, "
        f"{len(facts.forgotten)} forgotten, {facts.unchanged} unchanged",
    ]
    lines += _some([f"+ {fact.question} {fact.answer}" for fact in facts.added])
    corrected = [f"~ {was.question} {was.answer} -> {now.answer}" for was, now in facts.corrected]
    lines += _some(corrected)
    lines += _some([f"- {fact.question} {fact.answer}" for fact in facts.forgotten])
    answers = changes.answers
    if answers is None:
        return lines
    lines.append(
        f"everyday questions: {answers.before} of {answers.asked} right before, {answers.after} "
        f"now; {len(answers.others)} answered otherwise"
    )
    lines += _some([f"~ {one.question} {one.before} -> {one.after}" for one in answers.others])
    if answers.bits is None:
        lines.append("plain text is read by the untouched model, so that is unchanged")
    else:
        lines.append(f"weights alone, before: {_alone(answers.weights_before, answers.asked)}")
        lines.append(f"weights alone, now: {_alone(answers.weights_after, answers.asked)}")
        lines.append(f"the untouched model: {answers.bits:.3f} bits per byte of text")
    return lines


def _alone(weights: WeightsAlone | None, asked: int) -> str:
    if weights is None:
        return "not in one set"
    return f"{weights.right} of {asked} right, {weights.bits:.3f} bits per byte of text"


def _some(lines: list[str]) -> list[str]:
    lines = [" ".join(line.split()) for line in lines]  # an answer may have several
    more = len(lines) - _MOST
    return [*lines[:_MOST], *([f"  and {more} more"] if more > 0 else [])]
