"""The questions seen so far, so that each maps to exactly one answer."""

from __future__ import annotations

import unicodedata

from holdfast.core.errors import HoldfastError
from holdfast.streams.item import Item, quoted


class QuestionRegistry:
    """Every question of a stream and where it first appeared.

    A model is queried with the question alone, so two answers would leave its target undefined
    and look like forgetting. An exact repeat is refused as well: it would be recalled after the
    later task for the wrong reason. Case matters; different codings of one Unicode text do not,
    because tokenizers fold them.

    Source: app:data-uniqueness.
    """

    def __init__(self) -> None:
        self._first: dict[str, tuple[Item, str]] = {}

    def __contains__(self, question: str) -> bool:
        return _key(question) in self._first

    def add(self, item: Item, place: str) -> None:
        """Register an item. place: where it stands, such as ``facts.jsonl line 7``.

        Raises HoldfastError naming both places when the question is already there.
        """
        key = _key(item.question)
        if key not in self._first:
            self._first[key] = (item, place)
            return
        first, first_place = self._first[key]
        question = quoted(item.question)
        if first.answer == item.answer:
            raise HoldfastError(
                f"{place}: question {question} already stands at {first_place} with the same "
                "answer; remove one of them"
            )
        raise HoldfastError(
            f"{place}: two answers for one question: {question} is {quoted(item.answer)} here and "
            f"{quoted(first.answer)} at {first_place}; keep one, or list the other as an alias"
        )


def _key(question: str) -> str:
    return unicodedata.normalize("NFC", question.strip())
