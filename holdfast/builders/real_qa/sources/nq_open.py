"""NQ-Open: search queries of Natural Questions with their short answers."""

from __future__ import annotations

from holdfast.builders.real_qa.candidate import accepted
from holdfast.builders.real_qa.sources.published import json_lines
from holdfast.builders.real_qa.sources.source import Entry, Hub, Source, member, members


def _entry(values: object) -> Entry:
    """``{"question", "answer": [...]}``, in files and on the hub. There is no id."""
    return Entry(None, member(values, "question"), accepted(members(values, "answer")))


NQ_OPEN = Source(
    name="nq_open",
    kind="factoid",
    hub=Hub("google-research-datasets/nq_open", None, "train"),
    patterns=("NQ-open.*.jsonl",),
    records=json_lines,
    published=_entry,
    row=_entry,
)
