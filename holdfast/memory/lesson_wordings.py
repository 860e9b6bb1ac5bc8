"""Other wordings of a question, by rule, and corruptions of them, for lessons to train on."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import cache

from holdfast.builders.paraphrases import reworded
from holdfast.core.seeding import derive
from holdfast.memory.relations import ENTITY, other_wordings, relations
from holdfast.memory.words import words
from holdfast.streams.item import is_visible, question_key

RULED = 8  # wordings of a question by rule, at most
_LEFT_OUT = 0.15  # of the words that may be left out
_BEGINNING = 2, 9  # words


def lesson_wordings(question: str, given: Iterable[str] = ()) -> list[str]:
    """Wordings to train on besides the question: those given, then up to eight by rule.

    The rules are the library of relations, general frames and hurried spelling; which of them are
    taken depends on the question alone.
    """
    given = list(given)
    related = other_wordings(question)
    hurried = question.strip().rstrip("?.! ").lower()
    drawn = sorted(related, key=lambda text: derive(0, question, text))[:4]
    ruled = [hurried, *drawn, *reworded(question)]
    texts: dict[str, str] = {}
    for text in filter(is_visible, (*given, *ruled)):  # a question of signs alone leaves none
        texts.setdefault(question_key(text), text)
    texts.pop(question_key(question), None)
    return list(texts.values())[: len(given) + RULED]


def corruptions(wordings: Sequence[str], count: int) -> list[str]:
    """At most so many corruptions of a question's wordings; what it names stays in each.

    A corruption lacks words, or has the beginning of another question before it. They depend on
    the wordings alone.
    """
    draw = random.Random(derive(0, *wordings, "corrupted"))
    taught = set(map(question_key, wordings))
    corrupted: dict[str, str] = {}
    for _ in range(3 * count):
        text = _corrupted(draw.choice(wordings), draw)
        if len(corrupted) < count and is_visible(text) and question_key(text) not in taught:
            corrupted.setdefault(question_key(text), text)
    return list(corrupted.values())


def _corrupted(text: str, draw: random.Random) -> str:
    """Words are left out in three of four, and a beginning is put before half of these."""
    is_shortened = draw.random() < 0.75
    if is_shortened:
        text = _shortened(text, draw)
    if not is_shortened or draw.random() < 0.5:
        relation = draw.choice(relations())
        other = draw.choice(relation.wordings).replace(ENTITY, "it").split()
        text = " ".join([*other[: draw.randint(*_BEGINNING)], text.strip()])
    return text.strip()


def _shortened(text: str, draw: random.Random) -> str:
    """The text without some words that ask; what it names stays."""
    shortened, end = "", 0
    for place, word in enumerate(words(text)):
        asks = word.key in _asking_words() and (place == 0 or not word.is_marked)
        if asks and draw.random() < _LEFT_OUT:
            shortened += text[end : word.begin].rstrip()
        else:
            shortened += text[end : word.end]
        end = word.end
    return shortened + text[end:]


@cache
def _asking_words() -> frozenset[str]:
    """The words, in lower case, with which the library asks."""
    wordings = (text for relation in relations() for text in relation.wordings)
    return frozenset(word.key for text in wordings for word in words(text.replace(ENTITY, " ")))
