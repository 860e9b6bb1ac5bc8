"""`holdfast ask`: ask a memory."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.memory import Memory


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
) -> None:
    """Ask a memory what it has learned; print the answer and nothing else."""
    from holdfast.cli.progress import loading

    with loading():
        from holdfast.memory.memory import Memory
    with loading("loading the model"):
        opened = Memory(memory)
        opened.load()
    if question:
        print(_answer(opened, " ".join(question)))
    elif sys.stdin is not None and sys.stdin.isatty():
        with contextlib.suppress(KeyboardInterrupt, EOFError):
            while True:
                _converse(opened, input("? "))
        print()
    else:
        with contextlib.suppress(KeyboardInterrupt):
            for line in _lines():
                _converse(opened, line)


def _lines() -> Iterable[str]:
    """Yield the lines of standard input; a line that is not UTF-8 does not affect the others."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    # Some editors begin a file with a byte order mark.
    return (line.removeprefix("\ufeff") for line in sys.stdin or ())


def _converse(memory: Memory, line: str) -> None:
    """Answer each line with one line; an error is printed and does not end the dialogue."""
    try:
        answer = _answer(memory, line) if line.strip() else ""
    except HoldfastError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        answer = ""
    print(" ".join(answer.split()), flush=True)


def _answer(memory: Memory, question: str) -> str:
    reply = memory.reply(question)
    if reply.answer is None:
        print("holdfast: it gave no answer; this is what it wrote", file=sys.stderr)
        return reply.text
    return reply.answer
