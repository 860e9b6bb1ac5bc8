"""Other wordings of a question, by rule, for a lesson to train on."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.builders.paraphrases import reworded
from holdfast.core.seeding import derive
from holdfast.memory.relations import other_wordings
from holdfast.streams.item import is_visible
from holdfast.streams.registry import question_key

RULED = 8  # wordings of a question by rule, at most


def lesson_wordings(question: str, given: Iterable[str] = ()) -> list[str]:
    """Wordings to train on besides the question: those given, then up to eight by rule.

    The rules are the library of relations, general frames and hurried spelling; which of them are
    taken depends on the question alone.
    """
    given = list(given)
    related = other_wordings(question)
    hurried = question.strip().rstrip("?.! ").lower()
    ruled = [hurried, *_shuffled(question, related)[:4], *reworded(question)]
    texts: dict[str, str] = {}
    for text in filter(is_visible, (*given, *ruled)):  # a question of signs alone leaves none
        texts.setdefault(question_key(text), text)
    texts.pop(question_key(question), None)
    return list(texts.values())[: len(given) + RULED]


def _shuffled(question: str, texts: list[str]) -> list[str]:
    return sorted(texts, key=lambda text: derive(0, question, text))
