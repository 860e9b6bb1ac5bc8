"""`holdfast learn`: teach a memory facts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from holdfast.cli.fetch import fetch_backbone, fetch_bars, opened_memory
from holdfast.cli.printing import json_line
from holdfast.cli.progress import WorkBars, counting, loading
from holdfast.cli.verbs import TEXTS, MemoryPath
from holdfast.core.errors import HoldfastError, InUseError
from holdfast.memory.record import is_memory, read_record, require_memory

if TYPE_CHECKING:
    from holdfast.builders.text_model import TextModel
    from holdfast.memory.documents import Proposed
    from holdfast.memory.memory import Memory
    from holdfast.streams import Stream

QuestionColumn = Annotated[
    str | None, Option(help="Which column or key of the facts holds questions.")
]
AnswerColumn = Annotated[str | None, Option(help="Which column or key of the facts holds answers.")]
_SOURCES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".xlsx")


def learn(
    ctx: typer.Context,
    memory: MemoryPath,
    facts: Annotated[
        str | None,
        Argument(
            metavar="[FACTS]",
            help="A .jsonl, .json, .csv, .tsv, .parquet or .xlsx file, a stream's directory, or - "
            "for JSON lines from standard input; a .md, .txt, .pdf or .html document, or a folder "
            "of them; or a question, and its answer behind it. Without it, what is on file but "
            "not learned yet is learned.",
        ),
    ] = None,
    answer: Annotated[
        list[str] | None,
        Argument(
            metavar="[ANSWER]",
            help="The answer, if FACTS is a question. A text that begins with - stands behind --, "
            'as in learn MEMORY -- "What is 2 - 3?" -1.',
        ),
    ] = None,
    question_column: QuestionColumn = None,
    answer_column: AnswerColumn = None,
    again: Annotated[
        bool, Option("--again", help="Learn once more what was forgotten, of FACTS or of all.")
    ] = False,
    paraphrases: Annotated[
        int,
        Option(
            min=0,
            help="Learn each fact also under so many other wordings of its question, and ask one "
            "more that is not learned.",
        ),
    ] = 0,
    writer: Annotated[
        str | None,
        Option(
            help="Who writes them: the URL of an OpenAI-compatible endpoint, a hub name, a model's "
            "directory or .gguf file; rules for common English forms if unsaid. Of a document it "
            "proposes the facts; the memory's own model if unsaid."
        ),
    ] = None,
    review: Annotated[
        Path | None,
        Option(
            metavar="FACTS.csv",
            help="Write what is proposed from a document here, to be read and changed; learn "
            "nothing.",
        ),
    ] = None,
    yes: Annotated[
        bool, Option("--yes", help="Learn what is proposed from a document at once.")
    ] = False,
    model: Annotated[
        str | None,
        Option(
            help="Of a new memory: smollm2, a hub name, a directory, a .gguf file; or embedded, a "
            "toy for tests.",
            show_default="smollm2",
        ),
    ] = None,
    detach: Annotated[
        bool,
        Option(
            "--detach",
            help="Put the facts on file, start the lesson in the background, and return; "
            "`holdfast lessons MEMORY` says how far it is.",
        ),
    ] = False,
    wait: Annotated[
        bool, Option("--wait", help="Wait for another process that teaches this memory.")
    ] = False,
    existing: Annotated[
        bool, Option("--existing", help="Make no new memory; refuse where there is none.")
    ] = False,
    as_json: Annotated[
        bool, Option("--json", help="Print what was learned as one JSON object.")
    ] = False,
) -> None:
    """Teach facts to a memory, new or existing. The same command continues where it was stopped."""
    source = source_of([] if facts is None else [facts, *(answer or [])], ctx.meta[TEXTS])

    with loading():
        from holdfast.memory.facts import STANDARD_INPUT, stream_from
        from holdfast.streams.rows import Columns

    if source == STANDARD_INPUT and sys.stdin is not None and sys.stdin.isatty():
        print("reading facts as lines of JSON; Ctrl-D ends them", file=sys.stderr)
    if existing:
        require_memory(memory)
    document = is_document(source)
    _refuse_without_effect(source, ctx.params, document=document)
    check_goes_on(source, review, document=document, yes=yes)
    stream = None
    if source is not None and not document:
        stream = stream_from(source, Columns(question_column, answer_column))
    opened = opened_memory(memory, model_of(memory, model))
    if document:
        stream = facts_of_documents(opened, str(source), writer, review, as_json=as_json)
        if stream is None:
            return
    if stream is not None and (paraphrases or not document):
        stream = _worded(opened, stream, paraphrases, writer)
    if detach:
        _file_facts(opened, stream, again=again, as_json=as_json)
    else:
        _learn_facts(opened, stream, again=again, wait=wait, as_json=as_json)


def _refuse_without_effect(source: object, given: Mapping[str, Any], *, document: bool) -> None:
    """Raise HoldfastError for options that would be ignored. given: all options, by name."""
    if given["detach"] and given["wait"]:
        raise HoldfastError("--detach returns at once and --wait waits; give one of them")
    columns = given["question_column"] or given["answer_column"]
    if columns and (document or not isinstance(source, str)):
        raise HoldfastError("--question-column and --answer-column are for a table; leave them out")
    if source is None and (given["paraphrases"] or given["writer"]):
        raise HoldfastError("--paraphrases and --writer are for facts that are given; add FACTS")


def source_of(arguments: Sequence[str], texts: int = 0) -> str | list[tuple[str, str]] | None:
    """The source of facts, or the one fact, in ``[FACTS | QUESTION ANSWER]``; None without these.

    texts: how many of the last arguments stood after ``--``, which are no files.
    """
    if not arguments:
        return None
    first, *answers = arguments
    is_text = texts >= len(arguments)
    source = _is_source(first) and not is_text
    if len(answers) > 1:
        raise HoldfastError(
            f"{answers[1]!r:.60}: one question and one answer are expected; put each in quotes"
        )
    if answers and source:
        raise HoldfastError(
            f"{answers[0]!r:.60}: {first} is a source of facts, and takes no answer"
        )
    if answers and first.endswith(_SOURCES) and not is_text:
        raise HoldfastError(f"{first}: no such file; behind -- it is text")
    if answers:
        return [(first, answers[0])]
    looks_asked = ("?" in first or " " in first.strip() or not first) and not Path(first).suffix
    if is_text or (looks_asked and not source):
        raise HoldfastError(
            f"{first!r:.60} is no file; to teach it as a question, put its answer behind it: "
            'holdfast learn MEMORY "Question?" "Answer"'
        )
    return first


def _is_source(text: str) -> bool:
    try:
        return text == "-" or (bool(text) and Path(text).exists())  # Path("") exists, as Path(".")
    except (OSError, ValueError):  # not a possible path
        return False


def model_of(memory: Path, model: str | None) -> str:
    """The name of a memory's model; of a new memory, ``model``, or the default if that is None."""
    from holdfast.memory.default_model import default_model
    from holdfast.memory.record import check_free
    from holdfast.model.sources.fetch import lasting_name

    if is_memory(memory):
        recorded = read_record(memory).model
        if model is not None and lasting_name(model) != recorded:
            message = f"is a memory of {recorded}, not of {model}; leave --model out"
            raise HoldfastError(f"{memory}: {message}")
        return recorded
    check_free(memory)  # before anything is fetched
    if model is None:
        with fetch_bars() as report:
            model, reason = default_model(report)
        if reason:
            toy = "a toy of 3 million parameters"
            print(f"model: {model}, {toy}, since {reason}", file=sys.stderr)
    return model


def _worded(memory: Memory, facts: Stream, count: int, writer: str | None) -> Stream:
    if writer is None:
        return memory.worded(facts, count)
    if not count:
        raise HoldfastError("--writer writes other wordings; say how many with --paraphrases N")
    from holdfast.builders.paraphrases import ModelParaphraser

    paraphraser = ModelParaphraser(_writing_model(writer), memory.seed)
    with counting("other wordings") as report:
        return memory.worded(facts, count, paraphraser, report)


def _writing_model(name: str, shown: str | None = None) -> TextModel:
    """The model that writes, of this name. shown: another name of it, for the screen."""
    from holdfast.builders.load import text_model

    fetch_backbone(name)
    with loading(f"loading {shown or name}"):
        return text_model(name, precision="fastest")


def _file_facts(memory: Memory, facts: Stream | None, *, again: bool, as_json: bool) -> None:
    """Put facts on file, start a process that learns them, and print the lessons' numbers."""
    from holdfast.memory.detached import start_learning
    from holdfast.memory.telling import notice_lines

    filed = memory.write_facts(facts, again=again)
    if filed.lessons:
        start_learning(memory.directory)
    if as_json:
        state = "waiting" if filed.lessons else "learned"
        print(json_line({"lessons": filed.lessons, "state": state, "notices": filed.notices}))
        return
    for line in notice_lines(filed.notices):
        print(line, file=sys.stderr)
    for number in filed.lessons:
        print(f"lesson {number}")
    if filed.lessons:
        print(f"holdfast lessons {memory.directory} says how far it is", file=sys.stderr)
    else:
        print("nothing new; all facts are learned already")


def _learn_facts(
    memory: Memory, facts: Stream | None, *, again: bool, wait: bool, as_json: bool
) -> None:
    from holdfast.memory.telling import outcome_lines, outcome_values

    # With --wait, the model is loaded only after another process's lesson has ended.
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
    else:
        print("\n".join(outcome_lines(outcome)))
        print(memory.directory)


def is_document(source: object) -> bool:
    """Whether a source is a document, or a folder of them, from which a model proposes facts."""
    from holdfast.builders import documents
    from holdfast.streams.load import is_stored_stream

    if not isinstance(source, str) or source == "-":
        return False
    path = Path(source)
    if not path.exists() and path.suffix.lower() in documents.SUFFIXES:
        raise HoldfastError(f"{path}: no such file; give a document, or a folder of them")
    return path.exists() and not is_stored_stream(path) and documents.is_document(path)


def check_goes_on(source: object, review: Path | None, *, document: bool, yes: bool) -> None:
    """Raise HoldfastError unless a document has --review or --yes, and any other source neither."""
    if not document:
        if review is not None or yes:
            folder = isinstance(source, str) and Path(source).is_dir()
            no = f"{source} has none in it" if folder else "leave them out"
            raise HoldfastError(f"--review and --yes are for documents; {no}")
        return
    if review is not None and yes:
        raise HoldfastError("--review learns nothing and --yes learns at once; give one of them")
    if review is None and not yes:
        raise HoldfastError(
            f"{source}: facts of a document are proposed by a model; give --review FACTS.csv to "
            "read them first, or --yes to learn them at once"
        )
    if review is not None and review.suffix.lower() != ".csv":
        raise HoldfastError(f"--review {review}: is a CSV table; give it a name that ends in .csv")
    if review is not None and review.exists():
        raise HoldfastError(f"--review {review}: exists; move it, or give another name")


def facts_of_documents(
    memory: Memory, source: str, writer: str | None, review: Path | None, *, as_json: bool
) -> Stream | None:
    """The new facts that a model proposes, to be learned; None if written to ``review``."""
    from holdfast.memory.documents import write_review

    proposed = _proposed_facts(memory, source, writer)
    if review is not None and (proposed.new or proposed.contradicting):
        write_review(proposed, review)
    elif review is not None:
        print("nothing new is proposed, so no table is written", file=sys.stderr)
        review = None
    if as_json and (review is not None or not proposed.new):
        values = {"review": None if review is None else str(review), **proposed.counts()}
        print(json_line(values))
    else:
        print("\n".join(proposed.lines()), file=sys.stderr)
    if review is None:
        return proposed.stream(Path(source).name) if proposed.new else None
    if not as_json:
        print(f"to learn them: holdfast learn {memory.directory} {review}", file=sys.stderr)
        print(review)
    return None


def _proposed_facts(memory: Memory, source: str, writer: str | None) -> Proposed:
    """What a model proposes, beside what is on file; kept in the cache, so a call continues."""
    with loading():
        from holdfast.builders.documents import passages as read_passages
        from holdfast.builders.prompting import Completing, PromptForm, Writing
        from holdfast.builders.proposals import Proposer
        from holdfast.memory.documents import PROPOSALS, sorted_out
        from holdfast.model.sources.cache import cache_directory
        from holdfast.model.sources.fetch import fetch

    passages = read_passages(Path(source), partial(print, file=sys.stderr))
    name = writer if writer is not None else str(fetch(memory.model))
    model = _writing_model(name, writer or memory.model)
    # A memory's own model may be too small to follow instructions.
    form: PromptForm = Writing() if writer is not None and model.is_chat else Completing()
    with counting("reading", at_once=True) as report:
        proposer = Proposer(model, form, cache_directory() / PROPOSALS, memory.seed)
        proposed = proposer.propose(passages, report)
    del model, proposer  # the memory loads its own
    facts = memory.facts
    with loading("comparing with what is on file"):
        return sorted_out(proposed, facts, len(passages), memory.taken_for)
