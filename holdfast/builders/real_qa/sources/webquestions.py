"""WebQuestions: questions that were typed into a search engine, answered from Freebase."""

from __future__ import annotations

import re

from holdfast.builders.real_qa.candidate import UnusableError, accepted
from holdfast.builders.real_qa.sources.published import json_array
from holdfast.builders.real_qa.sources.source import Fields, Hub, Source, member, members

# A text may hold raw double quotes and parentheses, so its closing quote is the one followed by a
# closing parenthesis and then by the next description or the end of the list.
TEXT = re.compile(r'"((?:\\.|[^\\])*?)"(?=\s*\)\s*(?:\(description\s|\)\s*\Z))', re.DOTALL)
WORD = re.compile(r'[^\s()"]+')
OPEN = re.compile(r"\s*\(description\s+")
CLOSE = re.compile(r"\s*\)")
START = re.compile(r"\s*\(list(?=[\s)])")
ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def descriptions(expression: str) -> list[str]:
    """The texts of ``(list (description "A b") (description C))``.

    Raises UnusableError when the expression is of another form.
    """
    position = _end(START.match(expression))
    texts = []
    while opened := OPEN.match(expression, position):
        if quoted := TEXT.match(expression, opened.end()):
            texts.append(ESCAPE.sub(r"\1", quoted[1]))
            position = _end(quoted)
        else:
            word = WORD.match(expression, opened.end())
            position = _end(word)
            texts.append(word[0] if word else "")
        position = _end(CLOSE.match(expression, position))
    position = _end(CLOSE.match(expression, position))
    if expression[position:].strip():
        raise UnusableError('"targetValue" is no list of descriptions')
    return texts


def _end(match: re.Match[str] | None) -> int:
    if match is None:
        raise UnusableError('"targetValue" is no list of descriptions')
    return match.end()


def _published(values: object) -> Fields:
    """``{"utterance", "targetValue"}``. There is no id."""
    target = member(values, "targetValue")
    question = member(values, "utterance")
    if not isinstance(target, str):
        raise UnusableError("no answer")
    return Fields(None, question, accepted(descriptions(target)))


def _row(values: object) -> Fields:
    """``{"question", "answers": [...]}``."""
    return Fields(None, member(values, "question"), accepted(members(values, "answers")))


WEBQUESTIONS = Source(
    name="webquestions",
    kind="factoid",
    hub=Hub("Stanford/web_questions", None, "train"),
    patterns=("webquestions.examples.*.json",),
    records=json_array,
    published=_published,
    row=_row,
)
