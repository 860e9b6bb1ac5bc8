"""`holdfast learn`: teach a memory new facts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.track import Track, refuse_unknown_tracker
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.learning.config import RunConfig
    from holdfast.memory.chat.memory import ChatMemory
    from holdfast.memory.memory import Memory
    from holdfast.streams import Stream


def learn(
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
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ANSWER] [KEY=VALUE]...",
            help="The answer, if FACTS is a question; dotted settings of a new memory.",
        ),
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
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="Settings of a new memory on the embedded model: a recipe's name or a YAML file; "
            "memory by default.",
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
    track: Track = None,
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
    given = list(overrides or [])
    if facts is not None and _is_setting(facts):
        given.insert(0, facts)
        facts = None
    told_by_hand = _fact(facts, given)
    refuse_unknown_tracker(track)
    from holdfast.cli.progress import loading, showing

    with loading():
        from holdfast.memory.facts import STANDARD_INPUT, stream_from
        from holdfast.memory.memory import Memory
        from holdfast.memory.opening import refuse_new
        from holdfast.memory.telling import lesson_lines, lesson_values
        from holdfast.streams.columns import Columns
        from holdfast.tracking.tracking import tracked

    if facts == STANDARD_INPUT and sys.stdin is not None and sys.stdin.isatty():
        typer.echo("reading facts as lines of JSON; Ctrl-D ends them", err=True)
    if existing:
        refuse_new(memory)
    columns = Columns(question_column, answer_column)
    source = told_by_hand or facts
    stream: Stream | None = None if source is None else stream_from(source, columns)
    if stream is None and (paraphrases or writer):
        raise HoldfastError("--paraphrases and --writer are for facts that are given; add FACTS")
    if chosen := chat_model(memory, model, trajectory=bool(given) or recipe is not None):
        from holdfast.cli.chat_memory import refuse_settings, teach

        refuse_settings(given, recipe, track)
        worded = partial(_worded, count=paraphrases, writer=writer)
        how = {"again": again, "detach": detach, "wait": wait, "as_json": as_json}
        teach(memory, chosen, stream, worded, **how)
        return
    _refuse_background(detach=detach, wait=wait)
    if model is not None:
        given.append(f"backbone.name={model}")
    opened = Memory(memory, _settings(memory, recipe, given))
    if stream is not None:
        stream = _worded(opened, stream, paraphrases, writer)
    planned = len(opened.plan(stream, again=again).tasks)
    begin = opened.horizon
    with (
        showing(memory.name, begin, planned, memory) as progress,
        tracked(track, opened.config, memory, begin, progress) as listener,
    ):
        learned = opened.learn(stream, listener, again=again)
    if as_json:
        print(json.dumps(lesson_values(learned), ensure_ascii=False))
        return
    print("\n".join(lesson_lines(learned)))
    print(memory)


def chat_model(memory: Path, model: str | None, *, trajectory: bool) -> str | None:
    """The chat model of the memory; None for a memory of the embedded kind.

    model: as it was named; trajectory: whether settings of a trajectory were given.
    """
    from holdfast.cli.chat_memory import tell_fallback
    from holdfast.cli.fetch import FetchBars
    from holdfast.memory.chat.record import is_chat_memory, read_record
    from holdfast.memory.memory import recorded_in
    from holdfast.memory.opening import EMBEDDED, default_model
    from holdfast.model.fetch import lasting_name

    if is_chat_memory(memory):
        own = read_record(memory).model
        if model is not None and lasting_name(model) != own:
            raise HoldfastError(
                f"{memory}: is a memory of {own}, not of {model}; leave --model out"
            )
        return own
    if trajectory or model == EMBEDDED or recorded_in(memory) is not None:
        return None
    if model is None:
        with FetchBars() as report:
            model, reason = default_model(report)
        if reason:
            tell_fallback(reason)
    return None if model == EMBEDDED else model


def _refuse_background(*, detach: bool, wait: bool) -> None:
    if detach or wait:
        raise HoldfastError("--detach and --wait are for a memory on a chat model; leave them out")


def _is_setting(argument: str) -> bool:
    key, equals, _ = argument.partition("=")
    named = key.replace(".", "").replace("_", "")
    return bool(equals) and named.isalnum() and named.isascii() and not _exists(argument)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # too long for a path
        return False


def _fact(facts: str | None, given: list[str]) -> list[tuple[str, str]] | None:
    """The one fact of the command line, taken out of the arguments; None where FACTS is a source.

    Raises HoldfastError for a question without an answer, and an answer without a question.
    """
    answers = [argument for argument in given if not _is_setting(argument)]
    if facts is None or _exists(facts) or facts == "-":
        if answers and facts is not None:
            raise HoldfastError(
                f"{answers[0]!r:.60} is no setting KEY=VALUE, and {facts} is no question"
            )
        return None
    looks_like_one = "?" in facts or " " in facts.strip()
    if not answers:
        if looks_like_one and not Path(facts).suffix:
            raise HoldfastError(
                f"{facts!r:.60} is no file; to teach it as a question, put its answer behind it: "
                'holdfast learn MEMORY "Question?" "Answer"'
            )
        return None
    if len(answers) > 1:
        raise HoldfastError(
            f"{answers[1]!r:.60}: one question and one answer are expected; put each in quotes"
        )
    given.remove(answers[0])
    return [(facts, answers[0])]


def _worded(memory: Memory | ChatMemory, facts: Stream, count: int, writer: str | None) -> Stream:
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
