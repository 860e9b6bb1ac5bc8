"""What `holdfast learn` is told behind the memory: a source of facts, or one fact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.errors import HoldfastError

_SOURCES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".xlsx")
Source = str | list[tuple[str, str]] | None


def told(arguments: Sequence[str], texts: int = 0) -> Source:
    """The source, or a question and its answer: ``[FACTS | QUESTION ANSWER]``.

    texts: how many of the last stood behind ``--``; they are no files. Raises HoldfastError for
    a question without an answer, and for what is none of these.
    """
    if not arguments:
        return None
    first, *rest = arguments
    is_text = texts >= len(arguments)
    if not rest:
        if is_text or (not is_source(first) and _looks_asked(first) and not Path(first).suffix):
            raise HoldfastError(
                f"{first!r:.60} is no file; to teach it as a question, put its answer behind it: "
                'holdfast learn MEMORY "Question?" "Answer"'
            )
        return first
    if len(rest) > 1:
        raise HoldfastError(
            f"{rest[1]!r:.60}: one question and one answer are expected; put each in quotes"
        )
    if first.endswith(_SOURCES) and not is_text and not is_source(first):
        raise HoldfastError(f"{first}: no such file; behind -- it is text")
    if is_source(first) and not is_text:
        raise HoldfastError(f"{rest[0]!r:.60}: {first} is a source of facts, and takes no answer")
    return [(first, rest[0])]


def is_source(text: str) -> bool:
    """Whether facts can be read there: standard input, or what exists."""
    try:
        return text == "-" or Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or no text for one
        return False


def _looks_asked(text: str) -> bool:
    return "?" in text or " " in text.strip()
