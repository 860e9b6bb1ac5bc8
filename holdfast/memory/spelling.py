"""How a question may be spelled, and which taught questions are like it."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

_LIKE = 0.5  # the least similarity of a question that is offered
# Unicode's categories of brackets, quotes and other punctuation; of the last, what carries meaning.
_ENDS = frozenset({"Ps", "Pe", "Pi", "Pf", "Po"})
_MEANING = frozenset("#%&*@/\\\N{PER MILLE SIGN}\N{SECTION SIGN}")
_ONE_APOSTROPHE = str.maketrans({"\N{RIGHT SINGLE QUOTATION MARK}": "'"})


@lru_cache(maxsize=1 << 15)  # a memory's questions are compared with every one that it is asked
def loose_key(question: str) -> str:
    """A question without case, spacing, and punctuation at the ends of its words.

    In Unicode form NFKC. What stands within a word stays (``10:30``, ``A+B``), and so do symbols
    that carry meaning (``C#``, ``-5``, ``5%``).
    """
    plain = unicodedata.normalize("NFKC", question).translate(_ONE_APOSTROPHE)
    return " ".join(filter(None, map(bare, plain.casefold().split())))


def bare(word: str) -> str:
    """A word without the punctuation at its ends."""
    begin, end = 0, len(word)
    while begin < end and _is_punctuation(word[begin]):
        begin += 1
    if begin and word[begin - 1] == "." and word[begin:end][:1].isdigit():
        begin -= 1  # .5
    while end > begin and _is_punctuation(word[end - 1]):
        end -= 1
    return word[begin:end]


@lru_cache(maxsize=1 << 12)
def _is_punctuation(letter: str) -> bool:
    return unicodedata.category(letter) in _ENDS and letter not in _MEANING


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
