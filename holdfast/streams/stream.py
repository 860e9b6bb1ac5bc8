"""Tasks, streams of tasks, their order, and the registry in which each question occurs once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.notebook import caption, table
from holdfast.streams.item import Item, clean, question_key, quoted, same_answer

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 10  # tasks that a notebook shows


@dataclass(frozen=True)
class Task:
    """Items that arrive at once, in training order (before any shuffling by an epoch).

    name: unique in its stream; it stays with the task when the stream is reordered.
    Raises HoldfastError when the name is blank, or ``items`` is empty or holds anything else.
    """

    name: str
    items: tuple[Item, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", clean("task", self.name))
        object.__setattr__(self, "items", tuple(self.items))
        if any(not isinstance(item, Item) for item in self.items):
            raise HoldfastError(
                f"task {quoted(self.name)} has something else than items; "
                "give Item(question, answer)"
            )
        if not self.items:
            raise HoldfastError(f"task {quoted(self.name)} has no items; a task needs at least one")

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over questions, answers and aliases in order; names and ids do not count."""
        return sha256_of([[item.question, item.answer, list(item.aliases)] for item in self.items])


@dataclass(frozen=True, repr=False)
class Stream:
    """An ordered list of tasks in which every question occurs once.

    name: its name in reports. exact_case: whether recall of its answers is case-sensitive by
    default (yes for random symbols, no for words). about: how it was made, as JSON values; written
    into manifests, not in the fingerprint. repeats: allow repeated questions, which some published
    streams have.
    Raises HoldfastError when there is no task, two tasks have one name, or, unless ``repeats``, a
    question occurs twice.
    """

    tasks: tuple[Task, ...]
    name: str
    exact_case: bool = False
    about: Mapping[str, Any] = field(default_factory=dict, hash=False)
    repeats: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", tuple(self.tasks))
        if not self.tasks:
            raise HoldfastError(f"stream {quoted(self.name)} has no tasks; it needs at least one")
        names: set[str] = set()
        for task in self.tasks:
            if task.name in names:
                raise HoldfastError(
                    f"stream {quoted(self.name)} has two tasks named {quoted(task.name)}; "
                    "give each its own name"
                )
            names.add(task.name)
        questions = QuestionRegistry()
        for place, item in () if self.repeats else items_of(self.tasks):
            questions.add(item, place)

    def __repr__(self) -> str:
        items = sum(len(task.items) for task in self.tasks)
        return f"Stream({self.name!r}, {len(self.tasks)} tasks, {items} items)"

    def _repr_html_(self) -> str:
        """A table for notebooks: the first tasks, each with its first item."""
        rows = [
            (task.name, len(task.items), task.items[0].question, task.items[0].answer)
            for task in self.tasks[:_SHOWN]
        ]
        columns = ("task", "items", "first question", "its answer")
        remaining = len(self.tasks) - len(rows)
        more = caption(f"and {remaining} more tasks") if remaining else ""
        return caption(repr(self)) + table(columns, rows) + more

    def to_frame(self) -> pd.DataFrame:
        """A data frame with one row per item, which :func:`load_stream` reads back.

        Its columns are ``task``, ``question`` and ``answer``, and those of ``aliases``, ``id`` and
        ``details`` that any item has.
        """
        import pandas as pd

        frame = pd.DataFrame(
            [
                (task.name, item.question, item.answer, list(item.aliases), item.id, item.details)
                for task in self.tasks
                for item in task.items
            ],
            columns=["task", "question", "answer", "aliases", "id", "details"],
        )
        unused = [name for name in ("aliases", "id", "details") if not any(frame[name])]
        return frame.drop(columns=unused)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over the content of all tasks in order; names and ids do not count."""
        return sha256_of([task.fingerprint for task in self.tasks])

    def first(self, tasks: int) -> Stream:
        """The stream's first ``tasks`` tasks. Raises HoldfastError unless it has that many."""
        if not 1 <= tasks <= len(self.tasks):
            raise HoldfastError(
                f"stream {quoted(self.name)} has no first {tasks} tasks, as it holds "
                f"{len(self.tasks)}; set tasks to a number from 1 to {len(self.tasks)}"
            )
        return self if tasks == len(self.tasks) else replace(self, tasks=self.tasks[:tasks])


def task_order(count: int, seed: int) -> list[int]:
    """A permutation of ``range(count)``: position -> index in the stored stream.

    Drawn by ``random.sample``: ``shuffle`` would draw another permutation, and published seeds must
    give the published orders.
    """
    return Random(seed).sample(range(count), count)


def reorder(stream: Stream, order_seed: int | None) -> Stream:
    """The whole stream with its tasks permuted; ``order_seed`` None keeps their order.

    Take ``.first(tasks)`` after reordering, never before: the permutation is over all tasks, so
    that a shorter stream is a prefix of a longer one with the same ``order_seed``.
    """
    if order_seed is None:
        return stream
    order = task_order(len(stream.tasks), order_seed)
    return replace(stream, tasks=tuple(stream.tasks[index] for index in order))


def items_of(tasks: Iterable[Task]) -> Iterator[tuple[str, Item]]:
    """Every item with its place, as errors name it: ``task "a" item 1``."""
    for task in tasks:
        for number, item in enumerate(task.items, start=1):
            yield f"task {quoted(task.name)} item {number}", item


class QuestionRegistry:
    """Every question of a stream and where it first appeared.

    A model is asked the question alone, so two answers would leave its target undefined and look
    like forgetting. An exact repeat is refused too: training it again would hide what was retained.
    White space, invisible characters and equivalent encodings do not count; case does.

    Source: app:data-uniqueness.
    """

    def __init__(self) -> None:
        self._first: dict[str, tuple[Item, str]] = {}

    def __contains__(self, question: str) -> bool:
        return question_key(question) in self._first

    def add(self, item: Item, place: str) -> None:
        """Register an item. place: its position for errors, such as ``facts.jsonl line 7``.

        Raises HoldfastError naming both places when the question is already registered.
        """
        key = question_key(item.question)
        if key not in self._first:
            self._first[key] = (item, place)
            return
        first, first_place = self._first[key]
        question = quoted(item.question)
        if first.question != item.question:
            question += " (but for spacing or invisible characters)"
        if same_answer(first, item):
            raise HoldfastError(
                f"{place}: question {question} already stands at {first_place} with the same "
                "answer; remove one of them"
            )
        raise HoldfastError(
            f"{place}: two answers for one question: {question} is {quoted(item.answer)} here and "
            f"{quoted(first.answer)} at {first_place}; keep one, or list the other as an alias"
        )


def case_twins(
    items: Iterable[Item], alike: Callable[[str], str] = lambda text: question_key(text).casefold()
) -> list[tuple[Item, Item]]:
    """Pairs (first item, later item) of different questions that have one key under ``alike``.

    alike: question -> key; by default the question without case.
    """
    first: dict[str, Item] = {}
    twins = []
    for item in items:
        before = first.setdefault(alike(item.question), item)
        if question_key(before.question) != question_key(item.question):
            twins.append((before, item))
    return twins
