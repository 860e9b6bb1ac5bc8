"""What people ask of persons, things, places and so on: 600 relations, eight wordings each.

``relations.jsonl`` was written for Holdfast by hand. It shows a gate what makes two wordings one
question and what makes two questions about one entity different, and gives a lesson other wordings
of a question that it knows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

ENTITY = "{x}"
_EDGES = " .?!"


@dataclass(frozen=True)
class Relation:
    """A relation of entities of one kind.

    wordings: ways to ask for it, with ``{x}`` for the entity; answers: examples.
    """

    name: str
    kind: str
    wordings: tuple[str, ...]
    answers: tuple[str, ...]


@cache
def relations() -> tuple[Relation, ...]:
    """All relations, in the file's order."""
    text = (files("holdfast.memory") / "relations.jsonl").read_text(encoding="utf-8")
    rows = (json.loads(line) for line in text.splitlines())
    return tuple(
        Relation(row["name"], row["kind"], tuple(row["wordings"]), tuple(row["answers"]))
        for row in rows
    )


def other_wordings(question: str) -> list[str]:
    """The other wordings of a question that asks for a relation in a wording of the library.

    Empty for any other question. Case and the final mark make no difference.
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
    return [_capitalised(wording.replace(ENTITY, entity)) for wording in others]


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
