"""PopQA: questions made of a subject and a relation, about entities popular and obscure."""

from __future__ import annotations

import json

from holdfast.builders.real_qa.candidate import UnusableError
from holdfast.builders.real_qa.sources.published import table
from holdfast.builders.real_qa.sources.source import Fields, Hub, Source, member


def _entry(values: object) -> Fields:
    """``{"id", "obj", "question", "possible_answers"}``, the last one JSON within a cell."""
    entity = member(values, "obj")
    cell = member(values, "possible_answers")
    try:
        aliases = json.loads(cell)
    except (ValueError, TypeError, RecursionError):
        aliases = None
    if not isinstance(aliases, list):
        raise UnusableError('"possible_answers" is no JSON list')
    return Fields(member(values, "id"), member(values, "question"), (entity, *aliases))


POPQA = Source(
    name="popqa",
    kind="factoid",
    hub=Hub("akariasai/PopQA", None, "test"),
    patterns=("popQA.tsv",),
    records=table,
    published=_entry,
    row=_entry,
)
