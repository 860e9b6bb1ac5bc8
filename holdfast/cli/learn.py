"""`holdfast learn`: teach a memory new facts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.memories import WorkBars, opened_memory
from holdfast.cli.printing import json_line
from holdfast.cli.taught import told
from holdfast.cli.verbs import texts_in
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.memory import Memory
    from holdfast.streams import Stream


def learn(
    ctx: typer.Context,
    memory: Annotated[Path, typer.Argument(metavar="MEMORY", help="Its directory.")],
    facts: Annotated[
        str | None,
        typer.Argument(
            metavar="[FACTS]",
            help="A .jsonl, .json, .csv, .tsv, .parquet or .xlsx file, a stream's directory, or - "
            "for JSON lines from standard input; or a question, and its answer behind it. Without "
            "it, what is on file but not learned yet is learned.",
            show_default=False,
        ),
    ] = None,
    answer: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ANSWER]", help="The answer, if FACTS is a question."),
    ] = None,
    question_column: Annotated[
        str | None,
        typer.Option("--question-column", help="Which column or key of FACTS holds questions."),
    ] = None,
    answer_column: Annotated[
        str | None,
        typer.Option("--answer-column", help="Which column or key of FACTS holds answers."),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Learn once more what was forgotten, of FACTS or of all."),
    ] = False,
    paraphrases: Annotated[
        int,
        typer.Option(
            "--paraphrases",
            min=0,
            help="Learn each fact also under so many other wordings of its question, and ask one "
            "more that is not learned.",
        ),
    ] = 0,
    writer: Annotated[
        str | None,
        typer.Option(
            "--writer",
            help="Who writes them: the URL of an OpenAI-compatible endpoint, a hub name or a "
            "model's directory; rules for common English forms if unsaid.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Of a new memory: smollm2, a hub name, a directory, a .gguf file; or embedded, a "
            "toy for tests.",
            show_default="smollm2",
        ),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="Put the facts on file, start the lesson in the background, and return; "
            "`holdfast lessons MEMORY` says how far it is.",
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for another process that teaches this memory.")
    ] = False,
    existing: Annotated[
        bool, typer.Option("--existing", help="Make no new memory; refuse where there is none.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was learned as one JSON object.")
    ] = False,
) -> None:
    """Teach a memory facts; a new one is made. The same command continues where it was stopped."""
    given = [] if facts is None else [facts, *(answer or [])]
    source = told(given, texts_in(ctx))
    from holdfast.cli.progress import loading

    with loading():
        from holdfast.memory.facts import STANDARD_INPUT, stream_from
        from holdfast.memory.record import require_memory
        from holdfast.streams.rows import Columns

    if source == STANDARD_INPUT and sys.stdin is not None and sys.stdin.isatty():
        typer.echo("reading facts as lines of JSON; Ctrl-D ends them", err=True)
    if existing:
        require_memory(memory)
    columns = Columns(question_column, answer_column)
    stream = None if source is None else stream_from(source, columns)
    if stream is None and (paraphrases or writer):
        raise HoldfastError("--paraphrases and --writer are for facts that are given; add FACTS")
    opened = opened_memory(memory, model_of(memory, model))
    if stream is not None:
        stream = _worded(opened, stream, paraphrases, writer)
    if detach:
        file_facts(opened, stream, again=again, as_json=as_json)
    else:
        learn_facts(opened, stream, again=again, wait=wait, as_json=as_json)


def model_of(memory: Path, model: str | None) -> str:
    """The name of a memory's model: its own; of a new one the given or the default.

    Raises HoldfastError where the memory has another than the given one.
    """
    from holdfast.cli.fetch import fetch_bars
    from holdfast.memory.default_model import default_model
    from holdfast.memory.listing import check_free
    from holdfast.memory.record import is_memory, read_record
    from holdfast.model.fetch import lasting_name

    if is_memory(memory):
        own = read_record(memory).model
        if model is not None and lasting_name(model) != own:
            raise HoldfastError(
                f"{memory}: is a memory of {own}, not of {model}; leave --model out"
            )
        return own
    check_free(memory)  # before anything is fetched
    if model is None:
        with fetch_bars() as report:
            model, reason = default_model(report)
        if reason:
            typer.echo(f"model: {model}, a toy of 3 million parameters, since {reason}", err=True)
    return model


def file_facts(memory: Memory, facts: Stream | None, *, again: bool, as_json: bool) -> None:
    """Put facts on file, start to learn what waits there, and print the lessons' numbers."""
    from holdfast.memory.detached import start_learning

    filed = memory.write_facts(facts, again=again)
    if filed.lessons:
        start_learning(memory.directory)
    if as_json:
        state = "waiting" if filed.lessons else "learned"
        print(json_line({"lessons": list(filed.lessons), "state": state}))
        return
    for number in filed.lessons:
        print(f"lesson {number}")
    if not filed.lessons:
        print("nothing new; all facts are learned already")
    else:
        print(f"holdfast lessons {memory.directory} says how far it is", file=sys.stderr)


def learn_facts(
    memory: Memory, facts: Stream | None, *, again: bool, wait: bool, as_json: bool
) -> None:
    """Teach facts and print what was learned."""
    from holdfast.cli.progress import loading
    from holdfast.core.errors import InUseError
    from holdfast.memory.telling import outcome_lines, outcome_values

    # What waits behind another lesson needs no model before that has ended.
    if not wait and len(memory.plan(facts, again=again).tasks) != memory.horizon:
        with loading(f"loading {memory.model}"):
            memory.load()
    try:
        with WorkBars() as report:
            outcome = memory.learn(facts, again=again, wait=wait, report=report)
    except InUseError as error:
        raise HoldfastError(
            f"{memory.directory}: another process learns here; with --detach the facts are put on "
            "file and learned after its lesson, with --wait this command waits for it"
        ) from error
    except KeyboardInterrupt as stop:
        stop.add_note(f"{memory.horizon} lessons are kept")
        raise
    if as_json:
        print(json_line(outcome_values(outcome)))
        return
    print("\n".join(outcome_lines(outcome)))
    print(memory.directory)


def _worded(memory: Memory, facts: Stream, count: int, writer: str | None) -> Stream:
    """The facts with other wordings: by rules, by an endpoint or by a model of this machine."""
    from holdfast.cli.progress import counting
    from holdfast.cli.stream.model import text_model

    if writer is None:
        return memory.worded(facts, count)
    if not count:
        raise HoldfastError("--writer writes other wordings; say how many with --paraphrases N")
    from holdfast.builders.paraphrases import ModelParaphraser

    url = writer if "://" in writer else None
    model = text_model(writer, url, None, None)
    with counting("other wordings") as report:
        paraphraser = ModelParaphraser(model, memory.seed)
        return memory.worded(facts, count, paraphraser, report)
