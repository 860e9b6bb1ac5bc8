"""Compare questions whatever their spelling, and find similar ones."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

_LIKE = 0.5  # the least similarity of a nearest question
# Unicode's categories of brackets, quotes and other punctuation; the last without _MEANING.
_ENDS = frozenset({"Ps", "Pe", "Pi", "Pf", "Po"})
_MEANING = frozenset("#%&*@/\\\N{PER MILLE SIGN}\N{SECTION SIGN}")
_SIGNS = frozenset(";:,/\\&#()[]{}")  # kept in a word of nothing but punctuation
_ONE_APOSTROPHE = str.maketrans({"\N{RIGHT SINGLE QUOTATION MARK}": "'"})


@lru_cache(maxsize=1 << 15)  # each asked question is compared with all of a memory's
def loose_key(question: str) -> str:
    """A question without case, spacing, and punctuation at the ends of its words.

    In Unicode form NFKC, except for raised, lowered and circled signs (``10²`` is not ``102``).
    Symbols that carry meaning stay (``C#``, ``-5``, ``5%``, ``5!``), as does what is within a word
    (``10:30``, ``A+B``).
    """
    folded = "".join(map(_compatible, unicodedata.normalize("NFC", question)))
    plain = unicodedata.normalize("NFC", folded).translate(_ONE_APOSTROPHE)
    return " ".join(filter(None, map(_bare_or_sign, plain.casefold().split())))


@lru_cache(maxsize=1 << 12)
def _compatible(letter: str) -> str:
    """A letter in form NFKC, unless that loses that it is raised, lowered and the like."""
    lost = ("<super>", "<sub>", "<circle>", "<fraction>", "<square>")
    if unicodedata.decomposition(letter).startswith(lost):
        return letter
    return unicodedata.normalize("NFKC", letter)


def bare(word: str) -> str:
    """A word without the punctuation at its ends; the signs of ``.5`` and ``5!`` stay."""
    begin, end = 0, len(word)
    while begin < end and _is_punctuation(word[begin]):
        begin += 1
    if begin and word[begin - 1] == "." and word[begin:end][:1].isdigit():
        begin -= 1  # .5
    while end > begin and _is_punctuation(word[end - 1]):
        if word[end - 1] == "!" and word[end - 2 : end - 1].isdigit():
            break  # 5!
        end -= 1
    return word[begin:end]


def _bare_or_sign(word: str) -> str:
    return bare(word) or "".join(letter for letter in word if letter in _SIGNS)


@lru_cache(maxsize=1 << 12)
def _is_punctuation(letter: str) -> bool:
    return letter in "`´" or (unicodedata.category(letter) in _ENDS and letter not in _MEANING)


def taught_spellings(questions: Iterable[str]) -> dict[str, str]:
    """The question of every loose key that only one of the questions has."""
    by_key: dict[str, list[str]] = {}
    for question in questions:
        by_key.setdefault(loose_key(question), []).append(question)
    return {key: same[0] for key, same in by_key.items() if len(same) == 1 and key}


def nearest(question: str, questions: Sequence[str], most: int = 3) -> list[str]:
    """At most ``most`` of the questions, in order of likeness: difflib's ratio of words, at least
    0.5.
    """
    words = loose_key(question).split()
    asked = set(words)
    likeness = []
    for other in questions:
        others = loose_key(other).split()
        shared = sum(word in asked for word in others)
        if 2 * shared < _LIKE * (len(words) + len(others)):
            continue  # the ratio is lower still: it counts shared words in one order
        matcher = difflib.SequenceMatcher(None, words, others, autojunk=False)
        if (ratio := matcher.ratio()) >= _LIKE:
            likeness.append((ratio, other))
    likeness.sort(key=lambda pair: -pair[0])
    return [other for _, other in likeness[:most]]
