"""`holdfast ask`: ask a memory."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.chat.memory import ChatMemory
    from holdfast.memory.memory import Memory

Say = Callable[[str], tuple[str | None, bool | None]]

NOT_TAUGHT = 3  # the exit status


def ask(
    memory: Annotated[Path, typer.Argument(metavar="MEMORY", help="Its directory.")],
    question: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUESTION]",
            help="Without it, every line of standard input is one.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object for each question: answer, where it comes from, "
            "taught or not, seconds.",
        ),
    ] = False,
    taught_only: Annotated[
        bool,
        typer.Option("--taught-only", help="Answer only what was taught; status 3 for all else."),
    ] = False,
) -> None:
    """Ask a memory what it has learned; print the answer and nothing else.

    What was not taught is answered by the untouched model, and standard error says so; with
    --taught-only, and always on the embedded model, it is not answered and the exit status is 3.
    """  # fmt: skip
    from holdfast.cli.progress import loading

    with loading():
        from holdfast.memory.opening import open_memory
    with loading("loading the model"):
        opened = open_memory(memory)
        opened.load()
    say = _speaker(opened, as_json=as_json, taught_only=taught_only)
    if question:
        answer, taught = say(" ".join(question))
        if answer is not None:
            print(answer)
        if taught is False:
            raise typer.Exit(NOT_TAUGHT)
    elif not as_json and all(end is not None and end.isatty() for end in (sys.stdin, sys.stdout)):
        from holdfast.cli.conversation import converse

        converse(opened, taught_only=taught_only)
    else:
        with contextlib.suppress(KeyboardInterrupt):
            for line in _lines():
                _print_answer(line, say)


def _lines() -> Iterable[str]:
    """Yield the lines of standard input; a line that is not UTF-8 does not affect the others."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    # Some editors begin a file with a byte order mark.
    return (line.removeprefix("\ufeff") for line in sys.stdin or ())


def _speaker(memory: Memory | ChatMemory, *, as_json: bool, taught_only: bool) -> Say:
    """A function of a question: what to print, and whether it was taught."""
    from holdfast.memory.memory import Memory

    if isinstance(memory, Memory):
        memory.knowledge()
        return partial(_json if as_json else _plain, memory)
    from holdfast.cli.chat_memory import Asker

    return Asker(memory, as_json=as_json, taught_only=taught_only)


def _print_answer(line: str, say: Say) -> None:
    """Answer a line with one line; an error is printed and does not end the command."""
    answer: str | None = None
    try:
        if line.strip():
            answer, _ = say(line)
    except HoldfastError as error:
        print(f"holdfast: {error}", file=sys.stderr)
    print(" ".join((answer or "").split()), flush=True)


def _plain(memory: Memory, question: str) -> tuple[str | None, bool | None]:
    """The answer, None if it was not taught, and the verdict; what else there is to say is said."""
    from holdfast.memory.telling import untaught

    reply = memory.reply(question)
    if reply.taught is False:
        print(f"holdfast: {untaught(memory, reply)}", file=sys.stderr)
        return None, False
    if reply.answer is None:
        print("holdfast: it gave no answer; this is what it wrote", file=sys.stderr)
        return reply.text, reply.taught
    return reply.answer, reply.taught


def _json(memory: Memory, question: str) -> tuple[str, bool | None]:
    from holdfast.memory.telling import reply_values

    begin = time.perf_counter()
    reply = memory.reply(question)
    told = reply_values(memory, question, reply)
    told["seconds"] = round(time.perf_counter() - begin, 3)
    return json.dumps(told, ensure_ascii=False), reply.taught
