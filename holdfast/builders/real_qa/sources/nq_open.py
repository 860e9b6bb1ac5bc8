"""NQ-Open: search queries of Natural Questions with their short answers."""

from __future__ import annotations

from holdfast.builders.real_qa.candidate import accepted
from holdfast.builders.real_qa.sources.published import json_lines
from holdfast.builders.real_qa.sources.source import Fields, Hub, Source, member, members


def _entry(values: object) -> Fields:
    """``{"question", "answer": [...]}``, in files and on the hub. There is no id."""
    return Fields(None, member(values, "question"), accepted(members(values, "answer")))


NQ_OPEN = Source(
    name="nq_open",
    kind="factoid",
    hub=Hub("google-research-datasets/nq_open", None, "train"),
    patterns=("NQ-open.*.jsonl",),
    records=json_lines,
    published=_entry,
    row=_entry,
)
