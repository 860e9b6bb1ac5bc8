"""What `holdfast learn` and `holdfast ask` do with a memory on a chat model."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import typer

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.memory.chat.answer import Answer
    from holdfast.memory.chat.memory import ChatMemory
    from holdfast.streams import Stream


class WorkBars:
    """A progress bar on standard error for each piece of work that is reported."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._what: str | None = None
        self._draw: Callable[[int, int, str], None] = lambda *_: None

    def __enter__(self) -> WorkBars:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` of the work ``what`` are done."""
        from holdfast.cli.progress import counting

        if what != self._what:
            self._open.close()
            self._what = what
            self._draw = self._open.enter_context(counting(what))
        self._draw(done, total, "")


def opened_memory(directory: Path, model: str) -> ChatMemory:
    """The memory, its model fetched with a progress bar if it is not in the cache."""
    from holdfast.cli.fetch import FetchBars
    from holdfast.memory.chat.memory import ChatMemory
    from holdfast.model.fetch import fetch

    memory = ChatMemory(directory, model)
    with FetchBars() as report:
        fetch(memory.model, report)
    return memory


def teach(
    directory: Path,
    model: str,
    facts: Stream | None,
    worded: Callable[[ChatMemory, Stream], Stream],
    *,
    again: bool,
    detach: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Teach a memory facts, now or in the background. worded: adds other wordings to them."""
    memory = opened_memory(directory, model)
    if facts is not None:
        facts = worded(memory, facts)
    if detach:
        file_facts(memory, facts, again=again, as_json=as_json)
    else:
        learn_facts(memory, facts, again=again, wait=wait, as_json=as_json)


def file_facts(memory: ChatMemory, facts: Stream | None, *, again: bool, as_json: bool) -> None:
    """Put facts on file, start to learn what waits there, and print the lessons' numbers."""
    from holdfast.memory.chat.detached import start_learning

    filed = memory.write_facts(facts, again=again)
    if filed.lessons:
        start_learning(memory.directory)
    if as_json:
        state = "waiting" if filed.lessons else "learned"
        print(json.dumps({"lessons": list(filed.lessons), "state": state}))
        return
    for number in filed.lessons:
        print(f"lesson {number}")
    if not filed.lessons:
        print("nothing new; all facts are learned already")
    else:
        print(f"holdfast lessons {memory.directory} says how far it is", file=sys.stderr)


def learn_facts(
    memory: ChatMemory, facts: Stream | None, *, again: bool, wait: bool, as_json: bool
) -> None:
    """Teach facts and print what was learned."""
    from holdfast.cli.progress import loading
    from holdfast.core.files import InUseError
    from holdfast.memory.chat.telling import outcome_lines, outcome_values

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
        print(json.dumps(outcome_values(outcome), ensure_ascii=False))
        return
    print("\n".join(outcome_lines(outcome)))
    print(memory.directory)


class Asker:
    """Asks a memory on a chat model, and prints answers as `holdfast ask` does."""

    def __init__(self, memory: ChatMemory, *, as_json: bool, taught_only: bool) -> None:
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
        from holdfast.memory.chat.telling import answer_values

        values: dict[str, Any] = answer_values(self._memory, answer)
        if not self._fits(answer):
            values = {**values, "answer": None, "would_say": answer.text}
        return json.dumps({**values, "seconds": round(seconds, 3)}, ensure_ascii=False)


def source_line(answer: Answer) -> str:
    """A remark on an answer that the weights do not give; empty for one that they do."""
    if answer.waiting:
        return "from the list of facts; its lesson is not learned yet"
    return {
        "model": "the model's own answer; it was not taught that",
        "list": "from the list of facts; the weights say something else",
        "weights": "",
    }[answer.source]


def untaught_line(memory: ChatMemory, answer: Answer) -> str:
    """Why a question is not answered, what the model would say, and what is like it."""
    from holdfast.streams.item import quoted

    like = ", ".join(quoted(one) for one in memory.nearest(answer.question))
    said = f"it was not taught that; the model would say {quoted(answer.text)}"
    return said + (f"; taught and like it: {like}" if like else "")


def refuse_settings(given: list[str], recipe: str | None, tracker: str | None) -> None:
    """Refuse settings, recipes and trackers, which are for a memory on the embedded model."""
    if recipe is not None:
        raise HoldfastError("--recipe: holds settings of a memory on the embedded model alone")
    if tracker is not None:
        raise HoldfastError("--track: shows the training of a memory on the embedded model alone")
    if given:
        raise HoldfastError(
            f"{given[0]}: settings are for a memory on the embedded model alone; leave it out"
        )


def tell_fallback(reason: str) -> None:
    """Say why a new memory is made on the embedded model."""
    typer.echo(f"model: embedded, a toy of 3 million parameters, since {reason}", err=True)
