"""Questions about invented names, from the library of relations, and pairs of them for a gate."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.memory.invented import invented_name
from holdfast.memory.relations import ENTITY, relations

_GROUP = 4  # relations of one kind that share two names
_FREE = 4  # wordings of a relation that are each asked about another name
_HURRIED = 0.3  # fraction of the questions for pairs that are typed in a hurry
Difference = Literal["same", "relation", "entity"]  # what differs between two questions


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
