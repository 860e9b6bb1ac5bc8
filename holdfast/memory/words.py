"""How a question may be spelled, what its words name, and how far two questions name the same."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from holdfast.memory.library import ENTITY, relations

# The words of a question, in lower case, each with its naming weight: how many of its tokens belong
# to a name, 0 for a word that names nothing.
Names = Mapping[str, float]

_SEVERAL = 3  # relations
NAMED = 0.5  # the least naming weight of a word, or of a whole question, that names something
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
    """At most ``most`` questions, likest first: difflib's ratio of words, at least 0.5."""
    asked = loose_key(question).split()
    known = set(asked)
    likeness = []
    for other in questions:
        others = loose_key(other).split()
        shared = sum(word in known for word in others)
        if 2 * shared < _LIKE * (len(asked) + len(others)):
            continue  # the ratio is lower still: it counts shared words in one order
        matcher = difflib.SequenceMatcher(None, asked, others, autojunk=False)
        if (ratio := matcher.ratio()) >= _LIKE:
            likeness.append((ratio, other))
    likeness.sort(key=lambda pair: -pair[0])
    return [other for _, other in likeness[:most]]


@dataclass(frozen=True)
class Word:
    """A word as it is written, without punctuation at its ends and possessive s.

    begin, end: its place in the text, with these.
    """

    text: str
    begin: int
    end: int

    @property
    def key(self) -> str:
        return self.text.casefold()

    @property
    def is_marked(self) -> bool:
        return any(letter.isupper() or letter.isdigit() for letter in self.text)


@lru_cache(maxsize=8192)
def words(text: str) -> tuple[Word, ...]:
    """A text's words. Symbols with a meaning stay: ``C#`` is not ``C++``, ``5%`` is not ``5``."""
    all_words = []
    for part in re.finditer(r"\S+", text):
        word = bare(unicodedata.normalize("NFKC", part.group()))
        for ending in ("'s", "’s"):
            word = word.removesuffix(ending)
        if word:
            all_words.append(Word(word, *part.span()))
    return tuple(all_words)


@cache
def library_words() -> Counter[str]:
    """The words of the library's wordings, in lower case, and how many relations have each."""
    return Counter(
        key
        for relation in relations()
        for key in {
            word.key
            for wording in relation.wordings
            for word in words(wording.replace(ENTITY, " "))
        }
    )


@cache
def plain_words() -> frozenset[str]:
    """The words, in lower case, in wordings of at least three relations of the library.

    They name nothing. A word of only one or two relations (``key``) may name a thing elsewhere.
    """
    return frozenset(word for word, count in library_words().items() if count >= _SEVERAL)


def name_in(question: str, names: Names) -> str | None:
    """The longest run of words that name something, as it is written; None if none does."""
    span = name_span(question, names)
    return None if span is None else question[slice(*span)]


def replace_name(question: str, names: Names, name: str) -> str | None:
    """The question with ``name`` in place of its :func:`name_in`; None if it has none."""
    span = name_span(question, names)
    return None if span is None else f"{question[: span[0]]}{name}{question[span[1] :]}"


def name_span(question: str, names: Names) -> tuple[int, int] | None:
    """Where the name of :func:`name_in` begins and ends; None if there is none.

    A possessive s and punctuation after it are not part of it.
    """
    every = words(question)
    begin = end = start = 0
    for place, word in enumerate([*every, None]):
        if word is None or names.get(word.key, 0.0) < NAMED:
            if place - start > end - begin:
                begin, end = start, place
            start = place + 1
    if begin == end:
        return None
    last = every[end - 1]
    written = question[last.begin : last.end]
    behind = written.rfind(last.text)
    return every[begin].begin, last.end if behind < 0 else last.begin + behind + len(last.text)


def agreement(
    taught: Names, asked: Names, known: Container[str] = frozenset()
) -> tuple[float, float]:
    """How far two questions name the same things.

    Returns covered, the fraction of the taught question's naming weight that the asked one has, and
    extra, the fraction of the asked one's that the taught one lacks: 1 and 0 for equal questions
    and for two that name nothing. A word that names something in one question matches anywhere in
    the other (``the workshop's password``, ``the password of the workshop``), also with one typing
    error, unless the mistyped word is itself in ``known`` (``Karen``, ``Karin``).
    """
    shared = _shared(taught, asked, known)
    partners = set(shared.values())
    missing = sum(weight for word, weight in taught.items() if word not in shared)
    extra = sum(weight for word, weight in asked.items() if word not in partners)
    # A name has at least a token, so small weights, of which a probe is unsure, decide little.
    total, asked_total = (max(1.0, sum(names.values())) for names in (taught, asked))
    return 1 - missing / total, extra / asked_total


def names_apart(
    taught: Names, asked: Names, known: Container[str] = frozenset()
) -> tuple[frozenset[str], frozenset[str]]:
    """The asked question's words by which both name things, and the taught one's other names.

    known: as in :func:`agreement`.
    """
    shared = _shared(taught, asked, known)
    named = (
        partner for word, partner in shared.items() if max(taught[word], asked[partner]) >= NAMED
    )
    others = (word for word, weight in taught.items() if weight >= NAMED and word not in shared)
    return frozenset(named), frozenset(others)


def names_other_number(taught: Names, asked: Names) -> bool:
    """Whether each of two questions has a number in its name that the other lacks.

    They then name two things, however much of the names is equal (``3 May`` and ``5 May``).
    """
    ours, theirs = (
        {_number(word) for word, weight in names.items() if weight} - {""}
        for names in (taught, asked)
    )
    return bool(ours - theirs) and bool(theirs - ours)


def _number(word: str) -> str:
    """The digits in a word, or those of a number word (``three``, ``III``); "" if it is none."""
    return "".join(filter(str.isdigit, word)) or _NUMBERS.get(word, "")


_NUMBERS = {
    word: str(number)
    for row in (
        "one two three four five six seven eight nine ten eleven twelve",
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth",
        "i ii iii iv v vi vii viii ix x xi xii",
    )
    for number, word in enumerate(row.split(), start=1)
}


def _shared(taught: Names, asked: Names, known: Container[str]) -> dict[str, str]:
    """The taught question's words that the asked one has too, each as the asked one writes it."""
    partners = ((word, _partner(word, asked, known)) for word in taught)
    return {word: partner for word, partner in partners if partner is not None}


def _partner(word: str, others: Names, known: Container[str]) -> str | None:
    if word in others:
        return word
    return next((other for other in others if other not in known and is_typo(word, other)), None)


def is_typo(word: str, other: str) -> bool:
    """Whether two words of five letters or more differ by one letter, or two swapped ones."""
    if min(len(word), len(other)) < 5 or not (word.isalpha() and other.isalpha()):
        return False
    pairs = enumerate(zip(word, other, strict=False))
    place = next((n for n, (a, b) in pairs if a != b), min(len(word), len(other)))
    word, other = word[place:], other[place:]
    swapped = word[:2] == other[:2][::-1] and word[2:] == other[2:]
    return swapped or word[1:] in (other, other[1:]) or word == other[1:]


def index_keys(word: str) -> Iterable[str]:
    """The keys under which a word is indexed, so that a mistyped one is found."""
    return deletions(word) if len(word) >= 5 and word.isalpha() else (word,)


@cache
def deletions(word: str) -> frozenset[str]:
    """The word, and the word without each of its letters: keys of an index for typing errors.

    Two words that differ by one letter left out, added, replaced or swapped share a key; so do some
    others.
    """
    return frozenset([word, *(word[:place] + word[place + 1 :] for place in range(len(word)))])
