"""Other wordings of a question, by rule, and corruptions of them, to train on."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from holdfast.builders.paraphrases import reworded
from holdfast.core.seeding import derive
from holdfast.memory.relations import ENTITY, other_wordings, relations
from holdfast.memory.words import library_words, words
from holdfast.streams.item import is_visible, question_key

RULED = 8  # most wordings of a question by rule
_LEFT_OUT = 0.15  # probability that a word that may be left out is
_BEGINNING = 2, 9  # least and most words of another question's beginning


def lesson_wordings(question: str, given: Iterable[str] = ()) -> list[str]:
    """Wordings to train on besides the question: those given, then up to eight by rule.

    By rule are a hurried spelling, wordings from the library of relations, and general frames;
    which ones depends on the question alone.
    """
    given = list(given)
    related = other_wordings(question)
    hurried = question.strip().rstrip("?.! ").lower()
    drawn = sorted(related, key=lambda text: derive(0, question, text))[:4]
    ruled = [hurried, *drawn, *reworded(question)]
    texts: dict[str, str] = {}
    for text in filter(is_visible, (*given, *ruled)):  # the hurried spelling of "?" is empty
        texts.setdefault(question_key(text), text)
    texts.pop(question_key(question), None)
    return list(texts.values())[: len(given) + RULED]


def corruptions(wordings: Sequence[str], count: int) -> list[str]:
    """At most ``count`` corruptions of a question's wordings, which keep what it names.

    A corruption lacks words, or begins with the beginning of another question, or both. They depend
    on the wordings alone.
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
    """Leave out words in three cases of four; put a beginning before half of these and the rest."""
    is_shortened = draw.random() < 0.75
    if is_shortened:
        text = _shortened(text, draw)
    if not is_shortened or draw.random() < 0.5:
        relation = draw.choice(relations())
        other = draw.choice(relation.wordings).replace(ENTITY, "it").split()
        text = " ".join([*other[: draw.randint(*_BEGINNING)], text.strip()])
    return text.strip()


def _shortened(text: str, draw: random.Random) -> str:
    """The text without some of the words that ask."""
    shortened, end = "", 0
    for place, word in enumerate(words(text)):
        asks = word.key in library_words() and (place == 0 or not word.is_marked)
        if asks and draw.random() < _LEFT_OUT:
            shortened += text[end : word.begin].rstrip()
        else:
            shortened += text[end : word.end]
        end = word.end
    return shortened + text[end:]
