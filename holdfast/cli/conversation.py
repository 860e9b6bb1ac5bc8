"""A conversation with a memory in a terminal: line editing, history, and commands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.voices import Voice
    from holdfast.memory.chat.memory import ChatMemory
    from holdfast.memory.memory import Memory

_HELP = """\
Write a question; {answered}. A line that begins with / is a command:
  /teach QUESTION? ANSWER   teach a fact, or correct one; QUESTION = ANSWER if it has no ?
  /forgotten                {forgotten}
  /help                     this
Up and down go through the lines of this conversation; Ctrl-D ends it."""
_SHOWN = 20


def converse(memory: Memory | ChatMemory, *, taught_only: bool = False) -> None:
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
            said = respond(memory, line, taught_only=taught_only)
        except HoldfastError as error:
            print(f"holdfast: {error}", file=sys.stderr)
        else:
            if said:
                print(said, flush=True)


def respond(memory: Memory | ChatMemory, line: str, *, taught_only: bool = False) -> str:
    """What the memory says to a line. Raises HoldfastError for an unknown command or a bad fact."""
    from holdfast.cli.voices import voice_of

    voice = voice_of(memory, taught_only=taught_only)
    text = line.strip()
    if not text.startswith("/"):
        return voice.answer(text) if text else ""
    command, _, rest = text.partition(" ")
    if command == "/help":
        return _HELP.format(answered=voice.answered, forgotten=voice.forgotten)
    if command == "/forgotten":
        return _forgotten(voice)
    if command == "/teach":
        return _teach(voice, rest)
    raise HoldfastError(f"{command} is no command; /help lists them")


def _forgotten(voice: Voice) -> str:
    missed = voice.missed()
    lines = [item.question for item in missed[:_SHOWN]]
    if len(missed) > _SHOWN:
        lines.append(f"and {len(missed) - _SHOWN} more")
    return "\n".join(lines) or voice.nothing_missed()


def _teach(voice: Voice, fact: str) -> str:
    question, mark, answer = (part.strip() for part in fact.partition("?"))
    question += mark
    if not answer:
        question, _, answer = (part.strip() for part in fact.partition("="))
    if not question or not answer:
        raise HoldfastError("/teach takes a question and its answer: /teach Who rings? Ada")
    return "\n".join(voice.teach((question, answer)))
