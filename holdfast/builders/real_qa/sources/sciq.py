"""SciQ: crowdsourced science questions with one right answer and three distractors."""

from __future__ import annotations

from holdfast.builders.real_qa.sources.published import json_array
from holdfast.builders.real_qa.sources.source import Fields, Hub, Source, member


def _entry(values: object) -> Fields:
    """``{"question", "correct_answer"}``, in files and on the hub. There is no id."""
    return Fields(None, member(values, "question"), (member(values, "correct_answer"),))


SCIQ = Source(
    name="sciq",
    kind="mcqa",
    hub=Hub("allenai/sciq", None, "train"),
    patterns=("train.json", "valid.json", "test.json"),
    records=json_array,
    published=_entry,
    row=_entry,
)
