"""The library of relations: 600 things that people ask of persons, places and so on.

``relations.jsonl`` was written for Holdfast by hand, eight wordings per relation. They show a gate
which questions ask the same and which do not, and give lessons other wordings of their questions.
A gate is fitted to its questions about invented names, so to nothing that exists.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

ENTITY = "{x}"
_EDGES = " .?!"
_GROUP = 4  # relations of one kind that share two names
_FREE = 4  # wordings of a relation that are each asked about another name
_HURRIED = 0.3  # fraction of the questions for pairs that are typed in a hurry
Difference = Literal["same", "relation", "entity"]  # what differs between two questions
KINDS = ("person", "thing")
_SYLLABLES = (
    *("ka", "lo", "mi", "ren", "tor", "vel", "bru", "sha", "din", "wick", "mar", "os", "tin"),
    *("quil", "ha", "pel", "gro", "zan", "fer", "lu", "nor", "thi", "eb", "wyn", "cas", "dro"),
    *("ul", "jar", "bex", "no"),
)
_NOUNS = (
    *("key", "lamp", "kettle", "ledger", "clock", "boat", "garden", "cellar", "printer", "camera"),
    *("router", "scanner", "bridge", "mill", "tower", "engine", "cabinet", "recipe", "parcel"),
    *("map", "ladder", "wagon", "pump", "gate", "shed", "bell", "anchor", "loom", "barrel"),
    "press",
    *("chimney", "drum", "cart", "oven", "plough", "fiddle", "harp", "badger", "otter", "falcon"),
    *("moth", "beetle", "hound", "mule", "goat", "trout", "mushroom", "lily", "elm", "orchid"),
    *("fern", "soup", "pie"),
)
_ADJECTIVES = (
    *("brass", "green", "old", "small", "northern", "red", "spare", "second", "upper", "silver"),
    *("broken", "new", "wooden", "rusty", "tall", "narrow", "crooked", "painted", "hollow", "iron"),
    *("blue", "heavy", "quiet", "mossy", "stone", "winter", "copper", "left-hand", "striped"),
    *("round", "folding", "long-legged"),
)


@dataclass(frozen=True)
class Relation:
    """What is asked of entities of a kind: questions for it, with ``{x}`` for the entity."""

    kind: str
    wordings: tuple[str, ...]


@cache
def relations() -> tuple[Relation, ...]:
    """All relations, in the order of ``relations.jsonl``."""
    text = (files("holdfast.memory") / "relations.jsonl").read_text(encoding="utf-8")
    rows = (json.loads(line) for line in text.splitlines())
    return tuple(Relation(row["kind"], tuple(row["wordings"])) for row in rows)


def other_wordings(question: str) -> list[str]:
    """The library's other wordings of a question; empty if no wording of the library fits it.

    Case and the marks at both ends make no difference. The longest wording that fits counts.
    """
    asked = question.strip(_EDGES)
    folded = asked.casefold()
    best: tuple[int, Relation, int, str] | None = None
    for relation in relations():
        for place, wording in enumerate(relation.wordings):
            before, after = wording.casefold().strip(_EDGES).split(ENTITY)
            length = len(before) + len(after)
            fits = folded.startswith(before) and folded.endswith(after) and len(folded) > length
            if fits and length >= 8 and (best is None or length > best[0]):
                entity = asked[len(before) : len(asked) - len(after)]
                best = (length, relation, place, entity.strip())
    if best is None or not best[3]:
        return []
    _, relation, place, entity = best
    others = [*relation.wordings[:place], *relation.wordings[place + 1 :]]
    texts = [wording.replace(ENTITY, entity) for wording in others]
    return [text[:1].upper() + text[1:] for text in texts]


@dataclass(frozen=True)
class LibraryQuestion:
    """A question for one relation of the library.

    relation: its number; name: where the name lies in the text, without its article; group: the
    number of the relations that share names; about: which shared name, None for a name of its own.
    """

    text: str
    relation: int
    name: tuple[int, int]
    group: int
    about: int | None


def library_questions(draw: random.Random) -> list[LibraryQuestion]:
    """Seven questions for every relation: four about names of their own, three about two names.

    The relations of a group share the two names, which may have a part in common.
    """
    of_kind: dict[str, list[int]] = defaultdict(list)
    for number, relation in enumerate(relations()):
        of_kind[relation.kind].append(number)
    asked: list[LibraryQuestion] = []
    group = 0
    for kind, numbers in of_kind.items():
        draw.shuffle(numbers)
        for begin in range(0, len(numbers), _GROUP):
            name = invented_name(draw, kind)
            names = (name, _related(draw, name, kind))
            for number in numbers[begin : begin + _GROUP]:
                wordings = relations()[number].wordings
                chosen = draw.sample(wordings, _FREE + 3)
                for wording in chosen[:_FREE]:
                    free = invented_name(draw, kind)
                    asked.append(_question(draw, wording, free, number, group, None))
                for wording, about in zip(chosen[_FREE:], (0, 0, 1), strict=True):
                    asked.append(_question(draw, wording, names[about], number, group, about))
            group += 1
    return asked


def pairs_of(
    asked: Sequence[LibraryQuestion], count: int, draw: random.Random
) -> Iterator[tuple[int, int, Difference]]:
    """Yield ``count`` pairs of places in ``asked``, with what differs between the questions."""
    by_relation: dict[int, list[int]] = defaultdict(list)
    by_group: dict[int, list[int]] = defaultdict(list)
    for place, question in enumerate(asked):
        if question.about is not None:
            by_relation[question.relation].append(place)
            by_group[question.group].append(place)
    places = [place for rows in by_relation.values() for place in rows]
    made = 0
    while made < count:
        place = draw.choice(places)
        question = asked[place]
        differs: Difference = draw.choice(("same", "relation", "entity"))
        pool = by_group[question.group] if differs == "relation" else by_relation[question.relation]
        others = [
            other
            for other in pool
            if other != place
            and (asked[other].relation != question.relation) == (differs == "relation")
            and (asked[other].about != question.about) == (differs == "entity")
        ]
        if others:
            made += 1
            yield place, draw.choice(others), differs


def _question(
    draw: random.Random, wording: str, name: str, relation: int, group: int, about: int | None
) -> LibraryQuestion:
    if about is not None and draw.random() < _HURRIED:
        name, wording = _hurried(draw, name), wording.replace(ENTITY, "\0").lower().rstrip("?. ")
        wording = wording.replace("\0", ENTITY)
    begin = wording.index(ENTITY)
    text = wording.replace(ENTITY, name)
    text = text if wording == wording.lower() else text[:1].upper() + text[1:]
    article = len("the ") if name.lower().startswith("the ") else 0
    return LibraryQuestion(text, relation, (begin + article, begin + len(name)), group, about)


def _related(draw: random.Random, name: str, kind: str) -> str:
    """Another name, perhaps with one part in common."""
    other = invented_name(draw, kind)
    parts, others = name.split(), other.split()
    if len(parts) == len(others) > 1 and draw.random() < 0.5:
        place = draw.randrange(len(parts))
        others[place] = parts[place]
        other = " ".join(others)
    return other if other != name else f"{other} Senior"


def _hurried(draw: random.Random, name: str) -> str:
    """The name as somebody in a hurry types it: lower case, sometimes with two letters swapped."""
    name = name.lower()
    if len(name) > 6 and draw.random() < 0.3:
        place = draw.randrange(1, len(name) - 2)
        name = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
    return name


def invented_name(draw: random.Random, kind: str) -> str:
    """A name of a person; for any other kind of the library of relations, of a thing."""
    shape = draw.random()
    if kind == "person":
        count = 2 if shape < 0.7 else 1 if shape < 0.85 else 3
        return " ".join(_word(draw) for _ in range(count))
    if shape < 0.3:
        return f"{_word(draw)} {_word(draw)}"
    if shape < 0.5:
        return _word(draw)
    if shape < 0.8:
        return f"the {draw.choice(_ADJECTIVES)} {draw.choice(_NOUNS)}"
    if shape < 0.9:
        return f"{_word(draw)} {draw.choice(_NOUNS)}"
    return f"{_word(draw)}-{draw.randint(2, 99)}"


def _word(draw: random.Random) -> str:
    return "".join(draw.choice(_SYLLABLES) for _ in range(draw.choice((2, 2, 3)))).capitalize()
