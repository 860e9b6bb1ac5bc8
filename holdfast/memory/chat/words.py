"""The words of a question that name things, and how far two questions name the same ones."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache

from holdfast.memory.chat.relations import ENTITY, relations

_EDGES = ".,;:!?\"'()[]{}<>…“”‘’„«»¿¡。，？！、"
_SEVERAL = 3  # relations
_CAPITAL = 1.0  # added to the weight of a word with a capital or a digit
# They have capitals and are nobody's name.
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CALENDAR = frozenset([
    *_DAYS, *(f"{day}s" for day in _DAYS), "january", "february", "march", "april", "june", "july",
    "august", "september", "october", "november", "december",
])  # fmt: skip
_BESIDE = 0.25  # of the weight, of words without one beside words with one


def words(text: str) -> list[str]:
    """A text's words as they are written, without punctuation at their ends and possessive s.

    Symbols that carry meaning stay: ``C#`` and ``C++`` are two words, and so are ``5%`` and ``5``.
    """
    found = []
    for part in unicodedata.normalize("NFKC", text).split():
        word = part.strip(_EDGES)
        for ending in ("'s", "’s"):
            word = word.removesuffix(ending)
        if word:
            found.append(word)
    return found


@cache
def plain_words() -> frozenset[str]:
    """The words, in lower case, with which the library asks for several relations.

    They name nothing. A word of one or two relations alone (``key``) may name a thing elsewhere.
    """
    asking = Counter(
        word
        for one in relations()
        for word in {
            word.casefold()
            for wording in one.wordings
            for word in words(wording.replace(ENTITY, " "))
        }
    )
    return frozenset(word for word, count in asking.items() if count >= _SEVERAL)


class Naming:
    """Finds the words of a question that name things, each with a weight.

    A word that the library of relations does not ask with names something; it weighs as many
    as the tokens that it takes, and one more with a capital or a digit. Where a word behind the
    first has one of these, that is the name, and the others, which may be words of the relation
    (``the hallway of Plum Door``), weigh a fraction.
    """

    def __init__(self, tokens: Callable[[str], int], plain: frozenset[str] | None = None) -> None:
        """tokens: how many tokens a word takes; plain: words that name nothing."""
        self._tokens, self._plain = tokens, plain_words() if plain is None else plain

    def __call__(self, question: str) -> dict[str, float]:
        """The naming words of a question in lower case, with their weights."""
        weights: dict[str, float] = {}
        found = [(place, word) for place, word in enumerate(words(question))
                 if word.casefold() not in self._plain]  # fmt: skip
        named = any(place and _is_marked(word) for place, word in found)
        for _, word in found:
            tokens = self._tokens(f" {word.casefold()}")
            if _is_marked(word):
                weights[word.casefold()] = tokens + _CAPITAL
            else:
                weights.setdefault(word.casefold(), tokens * (_BESIDE if named else 1.0))
        return weights


def _is_marked(word: str) -> bool:
    return word.casefold() not in _CALENDAR and any(one.isupper() or one.isdigit() for one in word)


def replace_name(question: str, naming: Naming, name: str) -> str | None:
    """The question about another name: its longest row of naming words is replaced.

    None where it names nothing. Possessives and punctuation behind the row stay.
    """
    parts = question.split()
    named = [any(word.casefold() in naming(part) for word in words(part)) for part in parts]
    begin = end = start = 0
    for place, inside in enumerate([*named, False]):
        if not inside:
            if place - start > end - begin:
                begin, end = start, place
            start = place + 1
    if begin == end:
        return None
    last = parts[end - 1]
    bare = words(last)[-1]
    rest = last[last.rfind(bare) + len(bare) :] if bare in last else ""
    return " ".join([*parts[:begin], name + rest, *parts[end:]])


def agreement(taught: dict[str, float], asked: dict[str, float]) -> tuple[float, float]:
    """How far two questions name the same things.

    Returns the fraction of the taught question's naming weight that the asked one has, and the
    fraction of the asked one's that the taught one lacks; 1 and 0 for the same question. A word
    with one typing error counts as the word.
    """
    shared = {word: partner for word in taught if (partner := _partner(word, asked)) is not None}
    total, asked_total = sum(taught.values()), sum(asked.values())
    covered = sum(taught[word] for word in shared) / total if total else 1.0
    partners = set(shared.values())
    extra = sum(weight for word, weight in asked.items() if word not in partners)
    return covered, extra / asked_total if asked_total else 0.0


def _partner(word: str, others: Iterable[str]) -> str | None:
    if word in (others := list(others)):
        return word
    return next((other for other in others if is_typo(word, other)), None)


def is_typo(one: str, other: str) -> bool:
    """Whether two words of five letters or more differ by one letter, or two swapped ones."""
    if min(len(one), len(other)) < 5 or not (one.isalpha() and other.isalpha()):
        return False
    pairs = enumerate(zip(one, other, strict=False))
    place = next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
    one, other = one[place:], other[place:]
    swapped = one[:2] == other[:2][::-1] and one[2:] == other[2:]
    return swapped or one[1:] in (other, other[1:]) or one == other[1:]


@cache
def deletions(word: str) -> frozenset[str]:
    """The word, and the word without each of its letters: keys of an index for typing errors.

    Words that differ by one letter left out, put in, replaced or swapped with its neighbour share
    one; so do some others.
    """
    return frozenset([word, *(word[:place] + word[place + 1 :] for place in range(len(word)))])
