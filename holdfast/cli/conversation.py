"""A conversation with a memory in a terminal: line editing, history, and commands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.cli.memories import WorkBars
from holdfast.core.errors import HoldfastError, InUseError

if TYPE_CHECKING:
    from holdfast.memory.memory import Memory

_HELP = """\
Write a question; what was not taught is answered by the model itself, and marked. A line that begins with / is a command:
  /teach QUESTION? ANSWER   teach a fact, or correct one; QUESTION = ANSWER if it has no ?
  /forgotten                what was taught and comes from the list, since the weights give something else
  /help                     this
Up and down go through the lines of this conversation; Ctrl-D ends it."""  # noqa: E501
_SHOWN = 20


def converse(memory: Memory, *, taught_only: bool = False) -> None:
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


def respond(memory: Memory, line: str, *, taught_only: bool = False) -> str:
    """What the memory says to a line. Raises HoldfastError for an unknown command or a bad fact."""
    text = line.strip()
    if not text.startswith("/"):
        return _answer(memory, text, taught_only=taught_only) if text else ""
    command, _, rest = text.partition(" ")
    if command == "/help":
        return _HELP
    if command == "/forgotten":
        return _forgotten(memory)
    if command == "/teach":
        return _teach(memory, rest)
    raise HoldfastError(f"{command} is no command; /help lists them")


def _answer(memory: Memory, question: str, *, taught_only: bool) -> str:
    """The answer, with a remark on where it comes from if the weights do not give it."""
    from holdfast.cli.ask import source_line, untaught_line

    memory.refresh()  # another process may have taught it meanwhile
    answer = memory.reply(question)
    if taught_only and not answer.taught:
        return untaught_line(memory, answer)
    remark = source_line(answer)
    return f"{answer.text}\n  ({remark})" if remark else answer.text


def _forgotten(memory: Memory) -> str:
    missed = memory.missed()
    lines = [item.question for item in missed[:_SHOWN]]
    if len(missed) > _SHOWN:
        lines.append(f"and {len(missed) - _SHOWN} more")
    count = len(memory.learned)
    return "\n".join(lines) or f"nothing; all {count} facts are answered from the weights"


def _teach(memory: Memory, fact: str) -> str:
    """Teach a fact; another process that learns here takes it up where there is one."""
    from holdfast.memory.detached import start_learning
    from holdfast.memory.telling import outcome_lines

    question, mark, answer = (part.strip() for part in fact.partition("?"))
    question += mark
    if not answer:
        question, _, answer = (part.strip() for part in fact.partition("="))
    if not question or not answer:
        raise HoldfastError("/teach takes a question and its answer: /teach Who rings? Ada")
    try:
        with WorkBars() as report:
            return "\n".join(outcome_lines(memory.learn([(question, answer)], report=report)))
    except InUseError:
        memory.write_facts([(question, answer)])
        start_learning(memory.directory)
        return "another process learns here; this fact is on file and learned next"
