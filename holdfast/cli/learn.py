"""`holdfast learn`: teach a memory new facts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.learning.config import RunConfig
    from holdfast.memory.memory import Learned
    from holdfast.streams import Item, Stream

_FEW = 3


def learn(
    memory: Annotated[Path, typer.Argument(metavar="MEMORY", help="Its directory.")],
    facts: Annotated[
        str | None,
        typer.Argument(
            metavar="[FACTS]",
            help="A .jsonl, .csv or .tsv file, a stream's directory, or - for JSON lines from "
            "standard input; without it, what is on file but not learned yet is learned.",
            show_default=False,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Dotted settings of a new memory."),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Learn once more what was forgotten, of FACTS or of all."),
    ] = False,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="Settings of a new memory: a recipe's name or a YAML file; memory by default, "
            "memory_paper for a --model of your own.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Of a new memory: embedded, a hub name or a directory.",
            show_default="embedded",
        ),
    ] = None,
) -> None:
    """Teach a memory facts; a new one is made. The same command continues where it was stopped."""
    given = list(overrides or [])
    if facts is not None and "=" in facts and not Path(facts).exists():
        given.insert(0, facts)
        facts = None
    if model is not None:
        given.append(f"backbone.name={model}")
    from holdfast.cli.progress import loading, showing

    with loading():
        from holdfast.memory.facts import STANDARD_INPUT, stream_from
        from holdfast.memory.memory import Memory

    opened = Memory(memory, _settings(memory, recipe, given))
    if facts == STANDARD_INPUT and sys.stdin is not None and sys.stdin.isatty():
        typer.echo("reading facts as lines of JSON; Ctrl-D ends them", err=True)
    stream: Stream | None = None if facts is None else stream_from(facts)
    planned = len(opened.plan(stream, again=again).tasks)
    with showing(memory.name, opened.horizon, planned) as progress:
        learned = opened.learn(stream, progress, again=again)
    _print(learned)
    print(memory)


def _settings(memory: Path, recipe: str | None, overrides: Sequence[str]) -> RunConfig | None:
    """The settings given on the command line; None for the memory's own or the default."""
    from holdfast.cli.run import configuration
    from holdfast.core.config import apply_overrides
    from holdfast.learning.config import RunConfig
    from holdfast.memory.memory import recorded_in

    asked = apply_overrides({}, overrides)
    if "stream" in asked:
        raise HoldfastError("a memory has a stream of its own; leave stream.* out")
    recorded = recorded_in(memory)
    if recorded is not None and recipe is None:
        return RunConfig.of(recorded.model_dump(mode="json"), overrides) if overrides else None
    name = recipe or _default_recipe(asked)
    config = RunConfig.of(configuration(name), overrides)
    if recorded is None and recipe is None and name != "memory":
        typer.echo(
            f"settings: recipe {name}, the paper's, as those of the embedded model would be too "
            "fast for another",
            err=True,
        )
    return config


def _default_recipe(asked: dict[str, Any]) -> str:
    backbone = asked.get("backbone")
    name = backbone.get("name", "embedded") if isinstance(backbone, dict) else "embedded"
    return "memory" if name == "embedded" else "memory_paper"


def _print(learned: Learned) -> None:
    if learned.batches:
        several = len(learned.batches) > 1
        which = f"{len(learned.batches)} batches" if several else f"batch {learned.batches[0]}"
        right = len(learned.facts) - len(learned.missed)
        print(f"{which}: {right} of {len(learned.facts)} facts recalled")
        if learned.missed:
            print(f"not recalled: {_listed(learned.missed)}")
    for correction in learned.corrected[:_FEW]:
        before, after = correction.before, correction.after
        answers = f"is {_line(after.answer)}, was {_line(before.answer)}"
        print(f"corrected: {_line(after.question)} {answers}")
    if len(learned.corrected) > _FEW:
        print(f"corrected: {len(learned.corrected) - _FEW} more")
    if learned.repeated:
        print(f"learned before, not again: {_listed(learned.repeated)}")
    if learned.recalled is None:
        print(f"nothing new; {learned.known} facts are learned already")
    else:
        print(f"all so far: {learned.recalled} of {learned.known} facts recalled")


def _listed(items: Sequence[Item]) -> str:
    shown = ", ".join(_line(item.question) for item in items[:_FEW])
    return f"{shown} and {len(items) - _FEW} more" if len(items) > _FEW else shown


def _line(text: str) -> str:
    """A text in quotes, on one line, shortened."""
    from holdfast.streams.item import quoted

    return quoted(text, longest=200)
