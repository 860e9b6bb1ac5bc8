"""Excel workbooks: the first sheet as texts."""

from __future__ import annotations

import importlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.streams.item import quoted

logger = logging.getLogger(__name__)
_PLAIN = ("General", "@")  # formats that change no number
_LONGEST = 11  # symbols of a number that "General" shows without rounding it


class SheetCell:
    """A cell that is not empty, with the place at which a reader finds it."""

    def __init__(self, sheet: str, cell: Any) -> None:
        self._sheet, self._cell = sheet, cell

    @property
    def value(self) -> Any:
        """What the file holds, whatever its format."""
        return self._cell.value

    def text(self) -> str:
        """What the sheet shows; HoldfastError, with sheet and cell, where a format decides it."""
        value, kind = self._cell.value, self._cell.data_type
        if value is None:
            raise self._refused("holds a formula without its value", "calculate and save the file")
        if kind == "e":
            raise self._refused(f"holds the error {value}", "correct it")
        if isinstance(value, str):
            return value
        code = self._cell.number_format
        if isinstance(value, (int, float)) and code in _PLAIN:
            text = str(value).upper() if isinstance(value, bool) else f"{value:.15g}"
            if len(text) <= _LONGEST and "e" not in text:
                return text
        raise self._refused(
            f"holds {quoted(value)} in the format {quoted(code)}",
            "save the sheet as .csv, which holds what it shows, or format the cell as text",
        )

    def _refused(self, what: str, remedy: str) -> HoldfastError:
        place = f"cell {self._cell.coordinate} of sheet {quoted(self._sheet)}"
        return HoldfastError(f"{place} {what}; {remedy}")


def sheet_rows(path: Path) -> Iterator[tuple[int, list[SheetCell | None]]]:
    """The rows of a workbook's first sheet with their numbers; None for an empty cell.

    Raises whatever openpyxl raises for a file that is no workbook.
    """
    openpyxl = importlib.import_module("openpyxl")
    content = path.read_bytes()

    def first_sheet(*, data_only: bool) -> Any:
        # Rows are read one by one, so that millions of empty ones cost no memory.
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=data_only)
        if not book.worksheets:
            raise HoldfastError(f"{path}: has no sheet; write a question and an answer a row")
        first, *others = book.worksheets
        if others and data_only:
            names = ", ".join(quoted(one.title) for one in others)
            logger.warning(
                "%s: only its first sheet, %s, is read; it also has %s",
                path, quoted(first.title), names,
            )  # fmt: skip
        first.reset_dimensions()  # they may be wrong
        return first

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be read of styles and dates
        values, formulas = first_sheet(data_only=True), first_sheet(data_only=False)
        pairs = zip(values.rows, formulas.rows, strict=True)
        for number, (cells, written) in enumerate(pairs, start=1):
            yield number, _filled(values.title, cells, written)


def _filled(title: str, cells: Sequence[Any], written: Sequence[Any]) -> list[SheetCell | None]:
    """written: the same cells with formulas in place of their values."""
    row: list[SheetCell | None] = []
    for cell, source in zip(cells, written, strict=True):
        # The value of a formula that gives an empty text is of a type, "str", all the same.
        uncalculated = cell.value is None and source.data_type == "f" and cell.data_type == "n"
        row.append(SheetCell(title, cell) if cell.value is not None or uncalculated else None)
    return row
