"""MedMCQA: medical entrance examinations, four options."""

from __future__ import annotations

from holdfast.builders.real_qa.candidate import UnusableError
from holdfast.builders.real_qa.sources.choices import right_choice
from holdfast.builders.real_qa.sources.published import json_lines
from holdfast.builders.real_qa.sources.source import Fields, Hub, Source, member

OPTIONS = ("opa", "opb", "opc", "opd")


def _entry(values: object, cop: object, first: int) -> Fields:
    """``{"id", "question", "opa", "opb", "opc", "opd", "cop"}``; first: the ``cop`` of "opa"."""
    choices = [(number, member(values, key)) for number, key in enumerate(OPTIONS, start=first)]
    question = member(values, "question")
    if cop == -1:
        raise UnusableError("no answer key")
    if cop == 0 and first == 1:
        raise UnusableError('"cop" is 0, but the published files count from 1 and the hub from 0')
    return Fields(member(values, "id"), question, (right_choice(choices, cop),))


def _published(values: object) -> Fields:
    # The published test split has no "cop" at all.
    cop = values.get("cop") if isinstance(values, dict) else None
    return _entry(values, cop, first=1)


def _row(values: object) -> Fields:
    return _entry(values, member(values, "cop"), first=0)


MEDMCQA = Source(
    name="medmcqa",
    kind="mcqa",
    hub=Hub("openlifescienceai/medmcqa", None, "train"),
    patterns=("train.json", "dev.json", "test.json"),
    records=json_lines,
    published=_published,
    row=_row,
)
