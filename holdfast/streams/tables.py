"""Tables: CSV and TSV, Parquet, Excel and JSON files, and pandas data frames."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import replacing, write_text_atomically
from holdfast.streams.columns import KEYS, PARAPHRASES, Columns
from holdfast.streams.item import quoted
from holdfast.streams.rows import values_of
from holdfast.streams.stream import Stream

if TYPE_CHECKING:
    import pandas as pd

TABLES = (".csv", ".tsv", ".json", ".parquet", ".xlsx")
_SEPARATORS = (",", ";", "\t")  # some spreadsheets save a .csv with semicolons
_BAR = "|"  # separates the texts of one cell
_LISTS = ("aliases", PARAPHRASES)
_EXTRA = {".parquet": "pyarrow", ".xlsx": "openpyxl"}

Records = list[tuple[str, Any]]  # place, raw record
Parse = Callable[[Any], Mapping[str, Any]]  # raw record -> keys and values


def read_table(path: Path, columns: Columns) -> tuple[Records, Parse]:
    """The raw records of a file, each with its place, and what makes a mapping of one.

    An empty cell counts as a missing key. In cells, aliases and paraphrases are separated by a
    vertical bar, and details are JSON text.
    Raises HoldfastError when the file is missing, damaged or no table; the second part of what is
    returned raises it, without the place, for one record.
    """
    try:
        # Reading a named pipe or a device may never end.
        if path.exists() and not path.is_file():
            raise HoldfastError(f"{path}: is no regular file; give the path of a table")
        if path.suffix.lower() in (".csv", ".tsv"):
            return _read_text(path, columns), _of_header
        if path.suffix.lower() == ".json":
            return _read_json(path), _object
        return _read_binary(path), _cells
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file; give the path of a table") from None
    except UnicodeDecodeError:
        raise HoldfastError(f"{path}: is no UTF-8 text; save the file as UTF-8") from None
    except csv.Error as error:
        raise HoldfastError(f"{path}: is no table ({error}); check its quotes") from None
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror or error})") from error


def records_of(frame: pd.DataFrame) -> Records:
    """The rows of a data frame, numbered from 1, as mappings."""
    names = [str(name) for name in frame.columns]
    return [
        (f"row {number}", _cells(dict(zip(names, values, strict=True))))
        for number, values in enumerate(frame.itertuples(index=False, name=None), start=1)
    ]


def write_table(stream: Stream, path: Path) -> None:
    """Write a stream as a table, by the path's ending, such that it reads back equal.

    Raises HoldfastError for an alias that holds a vertical bar, for a package that is missing, and
    when the path cannot be written.
    """
    suffix = path.suffix.lower()
    rows = [values_of(task, item) for task in stream.tasks for item in task.items]
    if suffix == ".json":
        write_text_atomically(path, json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
        return
    used = [key for key in ("task", *KEYS) if any(key in row for row in rows)]
    names = list(dict.fromkeys(used))
    cells = [[_cell(key, row.get(key)) for key in names] for row in rows]
    out = io.StringIO(newline="")
    if suffix in (".csv", ".tsv"):
        writer = csv.writer(out, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
        writer.writerows([names, *cells])
        write_text_atomically(path, out.getvalue())
        return
    pd = _pandas(suffix)
    binary = io.BytesIO()
    if suffix == ".parquet":
        pd.DataFrame(cells, columns=names).to_parquet(binary, index=False)
    else:
        _workbook(path, [names, *cells]).save(binary)
    with replacing(path) as part:
        part.write_bytes(binary.getvalue())


def _workbook(path: Path, rows: list[list[str]]) -> Any:
    """An Excel workbook of texts; openpyxl would make a formula of one that begins with ``=``."""
    openpyxl = importlib.import_module("openpyxl")
    book = openpyxl.Workbook()
    for number, row in enumerate(rows, start=1):
        for place, text in enumerate(row, start=1):
            try:
                cell = book.active.cell(number, place, text)
            except openpyxl.utils.exceptions.IllegalCharacterError:
                raise HoldfastError(
                    f"{path}: Excel has no character for one in {quoted(text)}; write .jsonl"
                ) from None
            cell.data_type = "s"
    return book


def _cell(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key == "details":
        return json.dumps(value, ensure_ascii=False)
    if key in _LISTS:
        barred = next((text for text in value if _BAR in text), None)
        if barred is not None:
            raise HoldfastError(
                f"alias {quoted(barred)} holds a vertical bar, which separates aliases in a table; "
                "write .jsonl or .json"
            )
        return _BAR.join(value)
    return str(value)


def _read_text(path: Path, columns: Columns) -> Records:
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, separator = _header(path, file.readline(), columns)
        reader = csv.DictReader(file, header, delimiter=separator, strict=True)
        rows = ((f"line {reader.line_num + 1}", row) for row in reader)
        # Spreadsheets may save empty rows.
        return [(line, row) for line, row in rows if any(_texts_of(row))]


def _header(path: Path, line: str, columns: Columns) -> tuple[list[str], str]:
    """The column names and the separator. Names of known keys are in small letters."""
    known = {*KEYS, PARAPHRASES, "prompt", "completion", "instruction", "input", "output"}
    asked = {name for name in (columns.question, columns.answer) if name is not None}
    for separator in _SEPARATORS:
        cells = next(csv.reader([line], delimiter=separator, strict=True), [])
        names = [cell.strip() for cell in cells]
        names = [n if n in asked or n.lower() not in known else n.lower() for n in names]
        twice = [name for name in names if name and names.count(name) > 1]
        if twice:
            raise HoldfastError(f"{path}: has two columns {quoted(twice[0])}; keep one")
        # A column that was named and is not there is told with those that are.
        if len(set(names) & (known | asked)) >= 2 or (asked and len(names) > 1):
            return names, separator
    raise HoldfastError(
        f'{path}: its first line must name the columns "question" and "answer", separated by a '
        "comma, a semicolon or a tab; other names go with --question-column and --answer-column"
    )


def _texts_of(row: Mapping[str | None, Any]) -> Iterator[str]:
    for key, cell in row.items():
        yield from cell if key is None else [(cell or "").strip()]


def _of_header(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row of a CSV file as a mapping."""
    if None in row or None in row.values():
        length = "more" if None in row else "fewer"
        raise HoldfastError(f"has {length} cells than the first line; put quotes around a text")
    return _cells(row)


def _read_json(path: Path) -> Records:
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        reason = " ".join(str(error).split())
        raise HoldfastError(f"{path}: is no JSON ({reason}); write a list of objects") from None
    if isinstance(found, dict):
        lists = [value for value in found.values() if isinstance(value, list)]
        found = lists[0] if len(lists) == 1 else None
    if not isinstance(found, list):
        raise HoldfastError(f"{path}: is no list of objects; write [{{...}}, {{...}}]")
    return [(f"item {n}", one) for n, one in enumerate(found, start=1)]


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise HoldfastError(f"is {value!r:.60}, no object; write a question and an answer")
    return value


def _read_binary(path: Path) -> Records:
    pd = _pandas(path.suffix.lower())
    try:
        if path.suffix.lower() == ".parquet":
            return records_of(pd.read_parquet(path))
        return records_of(pd.read_excel(path, dtype=str, na_filter=False))
    except (FileNotFoundError, PermissionError, HoldfastError):
        raise
    except Exception as error:  # noqa: BLE001  # each library has errors of its own
        reason = " ".join(str(error).split())[:200]
        raise HoldfastError(f"{path}: is no table that can be read ({reason})") from None


def _pandas(suffix: str) -> Any:
    import pandas as pd

    needed = _EXTRA[suffix]
    if importlib.util.find_spec(needed) is None:
        raise HoldfastError(
            f'{suffix} files need the package {needed}; pip install "holdfast[tables]"'
        )
    return pd


def _cells(row: Mapping[Any, Any]) -> dict[str, Any]:
    """The filled cells of a row: texts stripped, numbers as text, lists and objects as they are."""
    found: dict[str, Any] = {}
    for name, cell in row.items():
        value = _plain(cell)
        if isinstance(value, str):
            value = value.strip()
        if value is None or (value == "" and name not in ("question", "answer")) or not name:
            continue
        key = str(name)
        if key in _LISTS and isinstance(value, str):
            parts = [text.strip() for text in value.split(_BAR)]
            value = [text for text in parts if text]
        elif key == "details" and isinstance(value, str):
            value = _json(value)
        elif key in KEYS and not isinstance(value, (str, list, dict)):
            value = str(value)
        found[key] = value
    return found


def _plain(cell: Any) -> Any:
    """A cell as a JSON value; None where it is empty."""
    if hasattr(cell, "tolist"):  # numpy's scalars and arrays
        cell = cell.tolist()
    if isinstance(cell, Mapping):
        return {str(key): _plain(value) for key, value in cell.items()}
    if isinstance(cell, (list, tuple)):
        return [_plain(value) for value in cell]
    if isinstance(cell, float):
        if math.isnan(cell):
            return None
        return int(cell) if cell.is_integer() else cell
    if cell is None or isinstance(cell, (str, int, bool)):
        return cell
    if str(cell) in ("NaT", "<NA>"):
        return None
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # brackets may nest too deep
        raise HoldfastError('"details" is no JSON; write an object as text') from None
