"""`holdfast ask`: ask a memory, once, line by line, or in a conversation in a terminal."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from holdfast.cli.printing import json_line
from holdfast.cli.progress import WorkBars, loading
from holdfast.cli.verbs import MemoryPath
from holdfast.core.errors import HoldfastError, InUseError
from holdfast.memory.record import require_memory

if TYPE_CHECKING:
    from holdfast.memory.answering import Answer
    from holdfast.memory.memory import Memory

REFUSED, NOT_TAUGHT = 2, 3  # exit statuses
_MOST = 20  # questions that /forgotten lists
# A fact's question ends at the last ? before a blank, or else at the first ?, or else before =.
_FACT = (r"(.*\?)\s+(.+)", r"(.*?\?)(.+)", r"([^=]+)=(.+)")
_HELP = """\
Write a question; what was not taught is answered by the model itself, and marked. A line that begins with / is a command:
  /teach QUESTION? ANSWER   teach a fact, or correct one; the answer is behind the last ?, or QUESTION = ANSWER
  /forgotten                what was taught and comes from the list, since the weights give something else
  /help                     this
Up and down go through the lines of this conversation; Ctrl-D ends it."""  # noqa: E501


def ask(
    memory: MemoryPath,
    question: Annotated[
        list[str] | None,
        Argument(
            metavar="[QUESTION]",
            help="In one or several words; without it, every line of standard input is one.",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        Option(
            "--json",
            help="Print one JSON object for each question: answer, where it comes from, "
            "taught or not, seconds.",
        ),
    ] = False,
    taught_only: Annotated[
        bool, Option("--taught-only", help="Answer only what was taught; status 3 for all else.")
    ] = False,
) -> None:
    """Ask a memory what it has learned; print the answer and nothing else.

    What was not taught is answered by the untouched model, and standard error says so; with
    --taught-only it is not answered and the exit status is 3. Standard error also has the taught
    question, if it was asked in other words.
    """
    require_memory(memory)
    with loading():
        from holdfast.memory.memory import Memory
    with loading("loading the model"):
        opened = Memory(memory)
        opened.load()
    if question:
        answer, fits = _answer(opened, " ".join(question), as_json, taught_only)
        if answer is not None:
            print(answer)
        if not fits:
            raise typer.Exit(NOT_TAUGHT)
    elif not as_json and all(end is not None and end.isatty() for end in (sys.stdin, sys.stdout)):
        _converse(opened, taught_only=taught_only)
    elif status := _answer_lines(opened, as_json, taught_only):
        raise typer.Exit(status)


def _answer_lines(memory: Memory, as_json: bool, taught_only: bool) -> int:
    """Answer each line of standard input with one line; the worst of their exit statuses."""
    statuses = {0}
    if isinstance(sys.stdin, io.TextIOWrapper):
        # A line that is not UTF-8 does not affect the others.
        sys.stdin.reconfigure(errors="surrogateescape")
    with contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin or ():
            question = line.removeprefix("\ufeff")  # byte order mark
            answer: str | None = None
            try:
                if question.strip():
                    answer, fits = _answer(memory, question, as_json, taught_only)
                    statuses.add(0 if fits else NOT_TAUGHT)
            except HoldfastError as error:
                print(f"holdfast: {error}", file=sys.stderr)
                statuses.add(REFUSED)
            # An answer becomes one line; JSON has no line feeds, so it stays exact.
            print(re.sub(r"\s*\n\s*", " ", answer or ""), flush=True)
    return next(status for status in (REFUSED, NOT_TAUGHT, 0) if status in statuses)


def _answer(
    memory: Memory, question: str, as_json: bool, taught_only: bool
) -> tuple[str | None, bool]:
    """What to print for a question, and whether the status may be 0. Remarks are printed here."""
    from holdfast.memory.telling import answer_values

    begin = time.perf_counter()
    answer = memory.reply(question)
    fits = answer.taught or not taught_only
    if as_json:
        seconds = round(time.perf_counter() - begin, 3)
        hidden = {} if fits else {"answer": None, "would_say": answer.text}
        return json_line({**answer_values(memory, answer), **hidden, "seconds": seconds}), fits
    if remark := _source_line(answer) if fits else _untaught_line(memory, answer):
        print(f"holdfast: {remark}", file=sys.stderr)
    return answer.text if fits else None, fits


def _source_line(answer: Answer) -> str:
    """A remark on where an answer comes from, and what was taught if it was asked otherwise."""
    from holdfast.memory.words import loose_key
    from holdfast.streams.item import quoted

    source = {
        "model": "the model's own answer; it was not taught that",
        "list": "from the list of facts; the weights say something else",
        "weights": "",
    }[answer.source]
    if answer.waiting:
        source = "from the list of facts; its lesson is not learned yet"
    taught = [item.question for item in (answer.fact, *answer.further) if item is not None]
    if taught and [*map(loose_key, taught)] != [loose_key(answer.question)]:
        listed = ", ".join(quoted(question, longest=200) for question in taught)
        source = "; ".join(filter(None, [source, f"taught: {listed}"]))
    return source


def _untaught_line(memory: Memory, answer: Answer) -> str:
    from holdfast.streams.item import quoted

    like = ", ".join(map(quoted, memory.nearest(answer.question)))
    line = f"it was not taught that; the model would say {quoted(answer.text)}"
    return line + (f"; taught and like it: {like}" if like else "")


def _converse(memory: Memory, *, taught_only: bool) -> None:
    """Answer and learn until the user ends the conversation; errors are printed."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter

    commands = WordCompleter(["/teach", "/forgotten", "/help"], sentence=True)
    session: PromptSession[str] = PromptSession(completer=commands, complete_while_typing=False)
    print("Ctrl-D ends, /help explains")
    while True:
        try:
            line = session.prompt("? ")
        except (EOFError, KeyboardInterrupt):
            return
        try:
            if reply := respond(memory, line, taught_only=taught_only):
                print(reply, flush=True)
        except HoldfastError as error:
            print(f"holdfast: {error}", file=sys.stderr)


def respond(memory: Memory, line: str, *, taught_only: bool = False) -> str:
    """The reply to a line of a conversation, which is a question or a command."""
    text = line.strip()
    command, _, fact = text.partition(" ")
    if command == "/help":
        return _HELP
    if command == "/forgotten":
        missed = [item.question for item in memory.missed()]
        if not missed:
            return f"nothing; all {len(memory.learned)} facts are answered from the weights"
        more = [f"and {len(missed) - _MOST} more"] if len(missed) > _MOST else []
        return "\n".join([*missed[:_MOST], *more])
    if command == "/teach":
        return _teach(memory, fact)
    if text.startswith("/"):
        raise HoldfastError(f"{command} is no command; /help lists them")
    if not text:
        return ""
    memory.refresh()  # another process may have taught it meanwhile
    answer = memory.reply(text)
    if taught_only and not answer.taught:
        return _untaught_line(memory, answer)
    remark = _source_line(answer)
    return f"{answer.text}\n  ({remark})" if remark else answer.text


def _teach(memory: Memory, fact: str) -> str:
    """Teach a fact; if another process is learning here, put it on file to be learned next."""
    from holdfast.memory.detached import start_learning
    from holdfast.memory.telling import outcome_lines

    parts = (re.fullmatch(form, fact.strip(), re.DOTALL) for form in _FACT)
    if not (match := next(filter(None, parts), None)):
        raise HoldfastError("/teach takes a question and its answer: /teach Who rings? Ada")
    question, answer = map(str.strip, match.groups())
    question = re.sub(r"\s+\?$", "?", question)
    try:
        with WorkBars() as report:
            return "\n".join(outcome_lines(memory.learn([(question, answer)], report=report)))
    except InUseError:
        memory.write_facts([(question, answer)])
        start_learning(memory.directory)
        return "another process learns here; this fact is on file and learned next"
