"""A conversation with a memory in a terminal: line editing, history, and commands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.memory import Memory

_HELP = """\
Write a question; it is answered, or it was not taught. A line that begins with / is a command:
  /teach QUESTION? ANSWER   teach a fact, or correct one; QUESTION = ANSWER if it has no ?
  /forgotten                what was taught and is not recalled
  /help                     this
Up and down go through the lines of this conversation; Ctrl-D ends it."""
_SHOWN = 20


def converse(memory: Memory) -> None:
    """Ask and teach until the user ends it; an error is printed and ends nothing."""
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
            said = respond(memory, line)
        except HoldfastError as error:
            print(f"holdfast: {error}", file=sys.stderr)
        else:
            if said:
                print(said, flush=True)


def respond(memory: Memory, line: str) -> str:
    """What the memory says to a line. Raises HoldfastError for an unknown command or a bad fact."""
    text = line.strip()
    if not text.startswith("/"):
        return _answer(memory, text) if text else ""
    command, _, rest = text.partition(" ")
    if command == "/help":
        return _HELP
    if command == "/forgotten":
        return _forgotten(memory)
    if command == "/teach":
        return _teach(memory, rest)
    raise HoldfastError(f"{command} is no command; /help lists them")


def _answer(memory: Memory, question: str) -> str:
    from holdfast.memory.telling import untaught

    reply = memory.reply(question)
    if reply.taught is False:
        return untaught(memory, reply)
    return reply.answer or f"it gave no answer; it wrote: {reply.text}"


def _forgotten(memory: Memory) -> str:
    missed = memory.forgotten()
    lines = [item.question for item in missed[:_SHOWN]]
    if len(missed) > _SHOWN:
        lines.append(f"and {len(missed) - _SHOWN} more")
    return "\n".join(lines) or f"nothing; all {len(memory.facts)} facts are recalled"


def _teach(memory: Memory, fact: str) -> str:
    from holdfast.cli.progress import showing
    from holdfast.memory.telling import lesson_lines

    question, mark, answer = (part.strip() for part in fact.partition("?"))
    question += mark
    if not answer:
        question, _, answer = (part.strip() for part in fact.partition("="))
    if not question or not answer:
        raise HoldfastError("/teach takes a question and its answer: /teach Who rings? Ada")
    pair = [(question, answer)]
    planned = len(memory.plan(pair).tasks)
    with showing(memory.directory.name, memory.horizon, planned, memory.directory) as progress:
        learned = memory.learn(pair, progress)
    return "\n".join(lesson_lines(learned))
