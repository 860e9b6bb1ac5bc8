"""Convert facts from any source to a stream, and to tables for notebooks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from holdfast.core.notebook import caption, table
from holdfast.streams import Item, Stream, Task, load_stream
from holdfast.streams.batches import newest
from holdfast.streams.item import question_key
from holdfast.streams.load import Facts as FactsOfPython
from holdfast.streams.load import facts_of_python, is_generated, read_stream
from holdfast.streams.rows import NAMED_AS_KEYS, Columns, json_object, lines_of, stream_of

if TYPE_CHECKING:
    import pandas as pd

Facts: TypeAlias = str | Path | Stream | FactsOfPython

STANDARD_INPUT = "-"
_ROWS = 20  # facts in a notebook


def stream_from(facts: Facts, columns: Columns = NAMED_AS_KEYS) -> Stream:
    """Convert facts to a stream with one task per batch, in order.

    facts: anything that :func:`holdfast.load_stream` takes; ``-`` for JSON lines from standard
    input; a stream. A later batch may correct the answer of an earlier one. Raises HoldfastError
    naming the file and each wrong line, or the number of each wrong fact.
    """
    if isinstance(facts, Stream):
        return facts
    columns = replace(columns, corrections=True)
    if not isinstance(facts, (str, Path)):
        return facts_of_python(facts, columns=columns)
    if str(facts) == STANDARD_INPUT:
        place = "standard input"
        lines = lines_of(sys.stdin.buffer.read() if sys.stdin else b"")
        return stream_of(place, lines, json_object, "facts", columns=columns)
    if is_generated(str(facts)):
        return load_stream(facts)
    return read_stream(Path(os.path.expanduser(facts)), columns=columns)


def html_of(facts: Sequence[Item]) -> str:
    """An HTML table of the 20 latest facts, for notebooks."""
    newest_first = [(item.question, item.answer) for item in reversed(facts)]
    earlier = len(newest_first) - _ROWS
    more = caption(f"and {earlier} earlier facts") if earlier > 0 else ""
    return table(("question", "answer"), newest_first[:_ROWS]) + more


def frame_of(batches: Sequence[Task]) -> pd.DataFrame:
    """The facts of batches as a data frame: each once, with its newest answer and batch."""
    import pandas as pd

    names = {question_key(item.question): batch.name for batch in batches for item in batch.items}
    rows = [
        (names[question_key(fact.question)], fact.question, fact.answer, list(fact.aliases))
        for fact in newest(batches)
    ]
    return pd.DataFrame(rows, columns=["batch", "question", "answer", "aliases"])
