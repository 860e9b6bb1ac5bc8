"""`holdfast stream`: make, convert and inspect streams."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from holdfast.cli.learn import AnswerColumn, QuestionColumn
from holdfast.cli.printing import say
from holdfast.cli.progress import loading
from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream
from holdfast.streams.item import evenly

Out = Annotated[Path, Option(help="The stream's directory; `run` takes it as stream.name.")]
Layout = Literal["released", "jsonl", "datasets"]  # of a stream's directory
Form = Literal["released", "jsonl", "datasets", "table"]  # formats of `convert`
FEW = 5
# Parts of a stream's provenance; model: the one that filtered or wrote it.
_PRINTED_KEYS = {"dataset_type", "writer", "model", "backbone", "seed"}


def symbol_qa(
    out: Out,
    seed: Annotated[int, Option(help="42 gives the published stream.")] = 42,
    tasks: Annotated[int, Option(help="How many tasks.")] = 100,
    items: Annotated[int, Option(help="Items in each task.")] = 100,
    layout: Annotated[Layout, Option(help="The format.")] = "released",
) -> None:
    """Write Symbol-QA: random six-symbol keys, each with a random value."""
    from holdfast.streams import symbol_qa as generate

    place = place_of(out, layout)
    stream = generate(tasks, items, seed)
    write(stream, place, layout)
    print_stream(stream, place)


def convert(
    source: Annotated[
        Path, Argument(metavar="IN", help="A stream in any format, or a generated one's name.")
    ],
    out: Annotated[Path, Argument(metavar="OUT", help="Where to write it.")],
    to: Annotated[
        Form | None,
        Option(
            help="The format; by default OUT's name decides: a .jsonl file, a table (.csv, .tsv, "
            ".json, .parquet, .xlsx), or released."
        ),
    ] = None,
    items_per_task: Annotated[
        int | None, Option(help="Cut rows that name no task into such tasks.")
    ] = None,
    question_column: QuestionColumn = None,
    answer_column: AnswerColumn = None,
) -> None:
    """Convert between the published layout, JSON lines, tables and a saved Hugging Face dataset."""
    from holdfast.streams import QuestionRegistry, load_stream
    from holdfast.streams.stream import items_of
    from holdfast.streams.tables import TABLES

    suffix = out.suffix.lower()
    if to is None:
        to = "jsonl" if suffix == ".jsonl" else "released"
        to = "table" if suffix in TABLES else to
    elif to == "table" and suffix not in TABLES:
        raise HoldfastError(f"{out}: a table's name ends with one of {', '.join(TABLES)}")
    elif to == "jsonl" and suffix != ".jsonl":
        raise HoldfastError(f"{out}: a file of JSON lines ends with .jsonl; name it so")
    elif to not in ("jsonl", "table") and suffix in (".jsonl", *TABLES):
        raise HoldfastError(f"{out}: --to {to} writes a directory; name one, or leave it out")
    stream = load_stream(
        source,
        items_per_task=items_per_task,
        question_column=question_column,
        answer_column=answer_column,
    )
    if to != "released":
        # Readers of these formats refuse repeated questions, so refuse them now, with their places.
        questions = QuestionRegistry()
        for place, item in items_of(stream.tasks):
            questions.add(item, f"{source}: {place}")
    write(stream, out, to)
    print_stream(stream, out)


def inspect(
    path: Annotated[Path, Argument(help="A stream in any format.")],
    backbone: Annotated[
        str, Option(help="Whose tokens to count; a name or a directory.")
    ] = "embedded",
    examples: Annotated[int, Option(min=0, help="Items to show.")] = 3,
) -> None:
    """Show counts, lengths in tokens, repeated questions, examples and the fingerprint."""
    with loading("reading the stream"):
        from holdfast.model.load import load_tokenizer
        from holdfast.streams import load_stream

        stream = load_stream(path)
        items = [item for task in stream.tasks for item in task.items]
        tokenizer = load_tokenizer(backbone)  # raises before anything is printed
    sizes = sorted(len(task.items) for task in stream.tasks)
    each = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    say("stream", f"{stream.name}, {len(sizes)} tasks of {each} items, {sum(sizes)} in all")
    say("fingerprint", stream.fingerprint)
    for key in sorted(set(stream.about) & _PRINTED_KEYS):
        say(key, str(stream.about[key]))
    say("case", "must be exact" if stream.exact_case else "does not count")
    print_items(items, tokenizer, backbone)
    for key in ("dataset", "topic"):
        counts = Counter(str(item.details[key]) for item in items if key in item.details)
        texts = [f"{name} {count}" for name, count in sorted(counts.items())[:12]]
        if len(counts) > len(texts):
            texts.append(f"... {len(counts)} in all")
        if counts:
            say(key, ", ".join(texts))
    for item in evenly(items, examples):
        print_example(item.question, (item.answer, *item.aliases))


def print_items(items: list[Item], tokenizer: Any, backbone: str) -> None:
    """Print lengths in tokens, and counts of answers, aliases and repeated questions."""
    from holdfast.model.quiet import quiet
    from holdfast.streams import Template

    if not items:
        return
    template = Template()
    with quiet():  # long texts are counted below, without the tokenizer's warning
        texts = [template.text(item) for item in items]
        rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
    lengths = sorted(map(len, rows))
    limit = template.config.max_length
    longer = sum(length > limit for length in lengths) or "none"
    middle = lengths[len(lengths) // 2]
    counted = f"{lengths[0]} to {lengths[-1]} a sequence of {backbone}, median {middle}"
    say("tokens", f"{counted}; {longer} above {limit}")
    answers = Counter(item.answer for item in items)
    shared = sum(count for count in answers.values() if count > 1)
    say("answers", f"{len(answers)} different; {shared} items share theirs with others")
    aliased = sum(bool(item.aliases) for item in items)
    say("aliases", f"{aliased} items accept other answers too")
    questions = Counter(item.question for item in items)
    twice = [question for question, count in questions.items() if count > 1]
    say("repeats", f"{len(twice)} questions stand more than once" if twice else "none")
    for question in twice[:FEW]:
        its_answers = sorted({item.answer for item in items if item.question == question})
        print_example(question, tuple(its_answers))


def print_example(question: str, answers: tuple[str, ...]) -> None:
    """Print a question and what is accepted as its answer."""
    accepted = " | ".join(answers[:FEW]) + (" | ..." if len(answers) > FEW else "")
    say("", f"{question} -> {accepted}")


def place_of(out: Path, layout: Layout) -> Path:
    """The path at which a stream is written: ``out``, or the layout's fixed name inside it."""
    from holdfast.streams.load import DATASET_IN_DIRECTORY, JSONL_IN_DIRECTORY
    from holdfast.streams.tables import TABLES

    inside = {"jsonl": JSONL_IN_DIRECTORY, "datasets": DATASET_IN_DIRECTORY}
    suffix = out.suffix.lower()
    if suffix == ".jsonl" and layout != "datasets":
        return out
    if suffix in (".jsonl", *TABLES):
        raise HoldfastError(f"{out}: --layout {layout} writes a directory; name one")
    return out / inside[layout] if layout in inside else out


def write(stream: Stream, place: Path, layout: Form) -> None:
    """Write a stream; warn if the format loses exact case. HoldfastError if the place is taken."""
    from holdfast.streams import tables, write_dataset, write_jsonl, write_released

    place = Path(os.path.abspath(place))
    is_lines = place.suffix.lower() == ".jsonl"
    if (is_lines or layout == "table") and place.exists():
        raise HoldfastError(f"{place}: is there already; choose another place, or remove it")
    if layout == "table":
        tables.write_table(stream, place)
    elif is_lines:
        write_jsonl(stream, place)
    elif layout == "datasets":
        write_dataset(stream, place)
    else:
        write_released(stream, place)
        return
    if stream.exact_case:
        form = "this format does not say that answers need their exact case"
        print(f"{form}; run it with evaluation.match=exact", file=sys.stderr)


def print_stream(stream: Stream, place: Path) -> None:
    """Print a stream's name, size, fingerprint and path."""
    items = sum(len(task.items) for task in stream.tasks)
    print(f"{stream.name}: {len(stream.tasks)} tasks, {items} items")
    print(f"fingerprint {stream.fingerprint}")
    print(place)
