"""The library of relations: 600 things that people ask of persons, places and so on.

``relations.jsonl`` was written for Holdfast by hand, eight wordings per relation. They show a gate
which questions ask the same and which do not, and give lessons other wordings of their questions.
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
    """Something that is asked of entities of one kind.

    wordings: questions for it, with ``{x}`` for the entity; answers: examples.
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
    return [_capitalised(wording.replace(ENTITY, entity)) for wording in others]


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
