"""Encode data for the page: matrices as base64, tables by column, JSON inside a script."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from holdfast.results import RecallMatrix

_WIDTHS = (1, 2, 4)  # bytes of a count; all bits set mark an entry that was not measured


def script_json(value: Any) -> Markup:
    """A JSON value as text that is safe inside a script element.

    No text in it can end the element or begin a comment: ``<``, ``>`` and ``&`` become JSON's own
    escapes of these characters. Raises ValueError for NaN, which is not JSON.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # already escaped for a script element


def encoded(matrix: RecallMatrix) -> dict[str, Any]:
    """A recall matrix as compact JSON values.

    ``tasks``: its horizon T; ``width``: bytes of a count, little-endian; ``correct``: base64 of the
    counts of rows 0..T, row i being tasks 1..i + 1; ``items``: one number if it is the same for
    all entries, else base64 like ``correct``.
    """
    tasks = matrix.horizon
    correct = np.full((tasks + 1) * (tasks + 2) // 2, -1, dtype=np.int64)
    items = correct.copy()
    for after_task, on_task, entry in matrix.entries():
        place = after_task * (after_task + 1) // 2 + on_task - 1
        correct[place], items[place] = entry.correct, entry.items
    sizes = {int(size) for size in np.unique(items[items >= 0])}
    largest = max(sizes, default=0)
    width = next(width for width in _WIDTHS if largest < 256**width - 1)
    return {
        "tasks": tasks,
        "width": width,
        "correct": _base64(correct, width),
        "items": largest if len(sizes) < 2 else _base64(items, width),
    }


def by_column(table: pd.DataFrame) -> dict[str, list[Any]]:
    """A table for JSON: its columns by name, None for missing values.

    Floats are rounded to eight significant digits, which is enough for reading.
    """
    return {str(name): [plain(value) for value in table[name]] for name in table.columns}


def plain(value: Any) -> Any:
    """One value of a table for JSON: a number, a text, or None for a missing value."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Hashable) and pd.isna(value):
        return None
    return str(value)


def _base64(counts: NDArray[np.int64], width: int) -> str:
    # In two's complement, -1 has all bits set in any width.
    return base64.b64encode(counts.astype(f"<i{width}").tobytes()).decode("ascii")
