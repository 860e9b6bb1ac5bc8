"""`holdfast stream inspect`: what is in a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from holdfast.cli.moved import has_moved

if TYPE_CHECKING:
    from holdfast.streams import Item, Stream

Value = TypeVar("Value")
_WIDTH = 13
FEW = 5
# Keys of a stream's provenance that are printed; model: the one that filtered or wrote it.
_TOLD = {"dataset_type", "writer", "model", "backbone", "seed"}


def inspect(
    path: Annotated[Path, typer.Argument(help="A stream in any format.")],
    source: Annotated[str | None, typer.Option("--source", hidden=True)] = None,
    backbone: Annotated[
        str, typer.Option("--backbone", help="Whose tokens to count; a name or a directory.")
    ] = "embedded",
    examples: Annotated[int, typer.Option("--examples", min=0, help="Items to show.")] = 3,
) -> None:
    """Show counts, lengths in tokens, repeated questions, examples and the fingerprint."""
    if source is not None:
        raise has_moved("stream inspect --source")
    from holdfast.cli.progress import loading

    with loading("reading the stream"):
        from holdfast.streams import load_stream

        stream = load_stream(path)
        items = [item for task in stream.tasks for item in task.items]
        tokenizer = _tokenizer(backbone)
    say("stream", f"{stream.name}, {_sizes(stream)}")
    say("fingerprint", stream.fingerprint)
    for key in sorted(set(stream.about) & _TOLD):
        say(key, str(stream.about[key]))
    say("case", "must be exact" if stream.exact_case else "does not count")
    print_items(items, tokenizer, backbone)
    for key in ("dataset", "topic"):
        counts = Counter(str(item.details[key]) for item in items if key in item.details)
        if counts:
            say(key, _listed(counts))
    for item in spread(items, examples):
        print_example(item.question, (item.answer, *item.aliases))


def _tokenizer(backbone: str) -> Any:
    """Load the tokenizer first, so that its absence is reported before anything is printed."""
    from holdfast.backbone.load import load_tokenizer

    return load_tokenizer(backbone)


def print_items(items: list[Item], tokenizer: Any, backbone: str) -> None:
    """Print lengths, aliases and repeated questions."""
    from holdfast.streams import Template

    if not items:
        return
    template = Template()
    lengths = sorted(
        len(tokenizer(template.text(item), add_special_tokens=False)["input_ids"]) for item in items
    )
    limit = template.config.max_length
    longer = sum(length > limit for length in lengths)
    above = f"{longer} above" if longer else "none above"
    say(
        "tokens",
        f"{lengths[0]} to {lengths[-1]} a sequence of {backbone}, median "
        f"{lengths[len(lengths) // 2]}; {above} {limit}",
    )
    answers = Counter(item.answer for item in items)
    shared = sum(count for count in answers.values() if count > 1)
    say("answers", f"{len(answers)} different; {shared} items share theirs with others")
    aliased = sum(bool(item.aliases) for item in items)
    say("aliases", f"{aliased} items accept other answers too")
    questions = Counter(item.question for item in items)
    twice = [question for question, count in questions.items() if count > 1]
    say("repeats", f"{len(twice)} questions stand more than once" if twice else "none")
    for question in twice[:FEW]:
        given = sorted({item.answer for item in items if item.question == question})
        print_example(question, tuple(given))


def _sizes(stream: Stream) -> str:
    sizes = sorted(len(task.items) for task in stream.tasks)
    each = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    return f"{len(sizes)} tasks of {each} items, {sum(sizes)} in all"


def _listed(counts: Counter[str]) -> str:
    shown = [f"{name} {count}" for name, count in sorted(counts.items())[:12]]
    return ", ".join(shown) + (f", ... {len(counts)} in all" if len(counts) > len(shown) else "")


def spread(values: Sequence[Value], count: int) -> list[Value]:
    """At most ``count`` values, evenly spaced, beginning with the first."""
    count = min(count, len(values))
    return [values[index * len(values) // count] for index in range(count)]


def print_example(question: str, answers: tuple[str, ...]) -> None:
    """Print a question and what is accepted as its answer."""
    shown = " | ".join(answers[:FEW]) + (" | ..." if len(answers) > FEW else "")
    print(f"{'':<{_WIDTH}}{question} -> {shown}")


def say(what: str, text: str) -> None:
    """Print a line below the same column as all others."""
    print(f"{what:<{_WIDTH}}{text}")
