"""A registry of questions, so that each question of a stream occurs once, with one answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.core.errors import HoldfastError
from holdfast.streams.item import Item, question_key, quoted, same_answer


class QuestionRegistry:
    """Every question of a stream and where it first appeared.

    A model is asked the question alone, so two answers would leave its target undefined and look
    like forgetting. An exact repeat is refused too: the later task would train it again, so its
    recall would say nothing about retention. Questions are the same if they differ only in white
    space, invisible characters or equivalent encodings; case counts.

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
