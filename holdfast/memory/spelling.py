"""How a question may be spelled, and which taught questions are like it."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

_LIKE = 0.5  # the least similarity of a question that is offered


@lru_cache(maxsize=1 << 15)  # a memory's questions are compared with every one that it is asked
def loose_key(question: str) -> str:
    """A question without case, punctuation and spacing, in Unicode form NFKC."""
    kept = "".join(one if one.isalnum() else " " for one in unicodedata.normalize("NFKC", question))
    return " ".join(kept.casefold().split())


def taught_spellings(questions: Iterable[str]) -> dict[str, str]:
    """The taught question of every loose key that one question alone has."""
    found: dict[str, list[str]] = {}
    for question in questions:
        found.setdefault(loose_key(question), []).append(question)
    return {key: one[0] for key, one in found.items() if len(one) == 1 and key}


def spellings(question: str) -> list[str]:
    """The question as it was asked, and with a capital first letter and a question mark.

    Spaces are collapsed in all. A question in capitals alone is also tried in small letters.
    """
    plain = " ".join(question.split())
    bare = plain.rstrip(".?! ") or plain
    texts = [plain, f"{bare}?", bare]
    if plain.isupper():
        texts += [text.lower() for text in texts]
    texts += [text[:1].upper() + text[1:] for text in texts]
    return list(dict.fromkeys(texts))


def capitals(question: str) -> list[str]:
    """The question with one further word capitalised, for each word in small letters."""
    words = question.split(" ")
    return [
        " ".join([*words[:place], word[:1].upper() + word[1:], *words[place + 1 :]])
        for place, word in enumerate(words)
        if word[:1].islower() and len(word[:1].upper()) == 1
    ]


def joined(question: str, better: Collection[str]) -> str:
    """The question with the capitals of all of ``better``, which :func:`capitals` made of it."""
    return "".join(
        next((other[place] for other in better if other[place] != letter), letter)
        for place, letter in enumerate(question)
    )


def nearest(question: str, questions: Sequence[str], most: int = 3) -> list[str]:
    """The taught questions most like this one, the most like first; perhaps none.

    Likeness: difflib's ratio of their words, at least 0.5.
    """
    words = loose_key(question).split()
    known = set(words)
    likeness = []
    for other in questions:
        others = loose_key(other).split()
        shared = sum(word in known for word in others)
        if 2 * shared < _LIKE * (len(words) + len(others)):
            continue  # the ratio is at most that of the words that both have, in any order
        matcher = difflib.SequenceMatcher(None, words, others, autojunk=False)
        likeness.append((matcher.ratio(), other))
    best = [one for one in likeness if one[0] >= _LIKE]
    return [other for _, other in sorted(best, key=lambda one: -one[0])[:most]]
