"""ARC and OpenBookQA, published by the same institute in one JSONL format."""

from __future__ import annotations

from holdfast.builders.real_qa.candidate import UnusableError
from holdfast.builders.real_qa.sources.choices import right_choice
from holdfast.builders.real_qa.sources.published import json_lines
from holdfast.builders.real_qa.sources.source import Fields, Hub, Source, member, members


def _published(values: object) -> Fields:
    """``{"id", "question": {"stem", "choices": [{"text", "label"}]}, "answerKey"}``.

    Labels are letters, or digits in some ARC questions; the answer key is of the same kind.
    """
    question = member(values, "question")
    choices = [
        (member(choice, "label"), member(choice, "text")) for choice in members(question, "choices")
    ]
    key = member(values, "answerKey")
    return Fields(member(values, "id"), member(question, "stem"), (right_choice(choices, key),))


def _row(values: object, stem: str) -> Fields:
    """``{"id", stem, "choices": {"text": [...], "label": [...]}, "answerKey"}``."""
    choices = member(values, "choices")
    labels, texts = members(choices, "label"), members(choices, "text")
    if len(labels) != len(texts):
        raise UnusableError("as many labels as choices are needed")
    answer = right_choice(zip(labels, texts, strict=True), member(values, "answerKey"))
    return Fields(member(values, "id"), member(values, stem), (answer,))


def _arc(name: str, part: str) -> Source:
    return Source(
        name=name,
        kind="mcqa",
        hub=Hub("allenai/ai2_arc", part, "train"),
        patterns=(f"{part}-*.jsonl",),
        records=json_lines,
        published=_published,
        row=lambda values: _row(values, "question"),
    )


ARC_CHALLENGE = _arc("arc_challenge", "ARC-Challenge")
ARC_EASY = _arc("arc_easy", "ARC-Easy")
OPENBOOKQA = Source(
    name="openbookqa",
    kind="mcqa",
    hub=Hub("allenai/openbookqa", "main", "train"),
    # The release holds the same questions again, with more keys, as train_complete.jsonl.
    patterns=("train.jsonl", "dev.jsonl", "test.jsonl"),
    records=json_lines,
    published=_published,
    row=lambda values: _row(values, "question_stem"),
)
