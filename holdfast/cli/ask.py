"""`holdfast ask`: ask a memory."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.printing import json_line
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.answer import Answer
    from holdfast.memory.memory import Memory

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
    --taught-only it is not answered and the exit status is 3.
    """
    from holdfast.cli.progress import loading

    with loading():
        from holdfast.memory.memory import Memory
        from holdfast.memory.record import require_memory
    require_memory(memory)
    with loading("loading the model"):
        opened = Memory(memory)
        opened.load()
    say = Asker(opened, as_json=as_json, taught_only=taught_only)
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


class Asker:
    """Asks a memory, and says on standard error what else there is to say of an answer."""

    def __init__(self, memory: Memory, *, as_json: bool, taught_only: bool) -> None:
        self._memory = memory
        self._as_json = as_json
        self._taught_only = taught_only

    def __call__(self, question: str) -> tuple[str | None, bool]:
        """What to print for a question, and whether it may end with status 0."""
        begin = time.perf_counter()
        answer = self._memory.reply(question)
        if self._as_json:
            return self._json(answer, time.perf_counter() - begin), self._fits(answer)
        if not self._fits(answer):
            print(f"holdfast: {untaught_line(self._memory, answer)}", file=sys.stderr)
            return None, False
        if remark := source_line(answer):
            print(f"holdfast: {remark}", file=sys.stderr)
        return answer.text, True

    def _fits(self, answer: Answer) -> bool:
        return answer.taught or not self._taught_only

    def _json(self, answer: Answer, seconds: float) -> str:
        from holdfast.memory.telling import answer_values

        values: dict[str, Any] = answer_values(self._memory, answer)
        if not self._fits(answer):
            values = {**values, "answer": None, "would_say": answer.text}
        return json_line({**values, "seconds": round(seconds, 3)})


def source_line(answer: Answer) -> str:
    """A remark on an answer that the weights do not give; empty for one that they do."""
    if answer.waiting:
        return "from the list of facts; its lesson is not learned yet"
    return {
        "model": "the model's own answer; it was not taught that",
        "list": "from the list of facts; the weights say something else",
        "weights": "",
    }[answer.source]


def untaught_line(memory: Memory, answer: Answer) -> str:
    """Why a question is not answered, what the model would say, and what is like it."""
    from holdfast.streams.item import quoted

    like = ", ".join(quoted(one) for one in memory.nearest(answer.question))
    said = f"it was not taught that; the model would say {quoted(answer.text)}"
    return said + (f"; taught and like it: {like}" if like else "")


def _print_answer(line: str, say: Asker) -> None:
    """Answer a line with one line; an error is printed and does not end the command."""
    answer: str | None = None
    try:
        if line.strip():
            answer, _ = say(line)
    except HoldfastError as error:
        print(f"holdfast: {error}", file=sys.stderr)
    # JSON has no line feed, so it stays exact.
    print(re.sub(r"\s*\n\s*", " ", answer or ""), flush=True)
