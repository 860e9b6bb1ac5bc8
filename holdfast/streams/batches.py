"""The facts file of a memory: batches in the order in which they are learned."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.core.files import write_text_atomically
from holdfast.streams.item import Item, question_key, quoted
from holdfast.streams.rows import json_object, lines_of, row_of, values_of
from holdfast.streams.stream import QuestionRegistry, Task

FACTS_FILE = "facts.jsonl"
WORDING_OF = "wording_of"  # key in an item's details: the question that it asks in other words


def read_batches(path: Path) -> tuple[Task, ...]:
    """Read the batches in a memory's facts file; empty if the file does not exist.

    Two batches may ask the same question: the later answer corrects the earlier one. Raises
    HoldfastError naming the line when the file is damaged.
    """
    try:
        content = regular(path).read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    batches: defaultdict[str, list[Item]] = defaultdict(list)
    asked: defaultdict[str, QuestionRegistry] = defaultdict(QuestionRegistry)
    for place, raw in lines_of(content):
        try:
            item, task = row_of(json_object(raw))
            if task is None:
                raise HoldfastError('"task" is missing; each fact of a memory names its batch')
            check_wording(item)
        except HoldfastError as error:
            raise HoldfastError(f"{path} {place}: {error}") from None
        asked[task].add(item, f"{path} {place}")
        batches[task].append(item)
    return tuple(Task(name, tuple(items)) for name, items in batches.items())


def write_batches(path: Path, batches: Iterable[Task]) -> None:
    """Write a facts file, perhaps empty, atomically. Raises HoldfastError if that fails."""
    rows = (values_of(task, item) for task in batches for item in task.items)
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    write_text_atomically(path, "".join(f"{line}\n" for line in lines))


def is_wording(item: Item) -> bool:
    """Whether the item asks for another item's fact in other words, and is no fact itself."""
    return WORDING_OF in item.details


def check_wording(item: Item) -> None:
    """Raise HoldfastError if an item has a ``wording_of`` that is no text."""
    of = item.details.get(WORDING_OF, item.question)
    if not isinstance(of, str) or not of.strip():
        raise HoldfastError(
            f'{quoted(item.question)}: "{WORDING_OF}" is {of!r:.60}; write the question of a fact, '
            "or leave it out"
        )


def fact_question(item: Item) -> str:
    """The question of an item's fact; for a wording, that of the fact that it asks for."""
    return str(item.details.get(WORDING_OF, item.question))


def fact_key(item: Item) -> str:
    """The key of :func:`fact_question`."""
    return question_key(fact_question(item))


def newest(tasks: Iterable[Task]) -> list[Item]:
    """Every fact once, in order of first appearance, with its latest answer."""
    return [item for item in latest(tasks).values() if not is_wording(item)]


def latest(tasks: Iterable[Task]) -> dict[str, Item]:
    """The latest item of every question, by question key; other wordings are included."""
    return {question_key(item.question): item for task in tasks for item in task.items}
