"""Convert facts from any source to a stream."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.streams import Stream, load_stream
from holdfast.streams.columns import Columns
from holdfast.streams.jsonl import json_object, lines_of
from holdfast.streams.python import Facts as FactsOfPython
from holdfast.streams.python import facts_of_python
from holdfast.streams.rows import read_rows, stream_of

Facts: TypeAlias = str | Path | Stream | FactsOfPython

STANDARD_INPUT = "-"


def stream_from(facts: Facts, columns: Columns | None = None) -> Stream:
    """Convert facts to a stream with one task per batch, in order.

    facts: anything that :func:`holdfast.load_stream` takes; ``-`` for JSON lines from standard
    input; a stream. columns: which columns or keys hold questions and answers.
    Raises HoldfastError naming the file and each wrong line, or the number of each wrong fact.
    """
    if isinstance(facts, Stream):
        return facts
    columns = columns or Columns()
    if isinstance(facts, (str, Path)) and str(facts) == STANDARD_INPUT:
        place = "standard input"
        content = sys.stdin.buffer.read() if sys.stdin else b""
        rows = read_rows(place, lines_of(content), json_object, columns)
        if not rows:
            raise HoldfastError(f"{place}: holds no facts; give a question and its answer")
        return stream_of(place, rows, "facts", None)
    if isinstance(facts, (str, Path)):
        return load_stream(facts, question_column=columns.question, answer_column=columns.answer)
    return facts_of_python(facts, columns=columns)
