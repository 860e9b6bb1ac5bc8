"""SQuAD: questions over passages. The passages are dropped, so answers must be recalled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.builders.real_qa.candidate import UnusableError, accepted
from holdfast.builders.real_qa.sources.published import in_file, parse, shown, text_of, within
from holdfast.builders.real_qa.sources.source import (
    Fields,
    Hub,
    PublishedRecord,
    Source,
    member,
    members,
)


def _records(path: Path) -> Iterator[PublishedRecord]:
    """``{"data": [{"paragraphs": [{"qas": [...]}]}]}``; questions are numbered through the file."""
    document = parse(shown(path), text_of(path))
    with within(shown(path)):
        articles = members(document, "data")
    number = 0
    for article_number, article in enumerate(articles, start=1):
        with within(f"{shown(path)} article {article_number}"):
            questions = [
                question
                for paragraph in members(article, "paragraphs")
                for question in members(paragraph, "qas")
            ]
        for question in questions:
            number += 1
            yield in_file(path, "record", number, question)


def _published(values: object) -> Fields:
    """``{"id", "question", "answers": [{"text"}]}``; version 2 marks unanswerable questions."""
    answers = accepted(member(answer, "text") for answer in members(values, "answers"))
    if isinstance(values, dict) and values.get("is_impossible"):
        raise UnusableError("marked as impossible to answer")
    return Fields(member(values, "id"), member(values, "question"), answers)


def _row(values: object) -> Fields:
    """``{"id", "question", "answers": {"text": [...]}}``."""
    answers = accepted(members(member(values, "answers"), "text"))
    return Fields(member(values, "id"), member(values, "question"), answers)


SQUAD = Source(
    name="squad",
    kind="factoid",
    hub=Hub("rajpurkar/squad", None, "train"),
    patterns=("train-v*.json", "dev-v*.json"),
    records=_records,
    published=_published,
    row=_row,
)
