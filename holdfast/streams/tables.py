"""Tables: CSV and TSV, Parquet, Excel and JSON files, and pandas data frames."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import itertools
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.files import atomic_write, write_text_atomically
from holdfast.streams.item import quoted
from holdfast.streams.rows import (
    KEYS,
    KNOWN_KEYS,
    NAMED_AS_KEYS,
    PAIRS,
    PARAPHRASES,
    Columns,
    details_of,
    known_names,
    reading,
    stream_of,
    values_of,
    without_null,
)
from holdfast.streams.stream import Stream

if TYPE_CHECKING:
    import pandas as pd

TABLES = (".csv", ".tsv", ".json", ".parquet", ".xlsx")
_SEPARATORS = (",", ";", "\t")  # some spreadsheets save a .csv with semicolons
_BAR = "|"  # separates the texts of one cell
_LISTS = ("aliases", PARAPHRASES)
_PLAIN = ("General", "@")  # cell formats that do not change a number
_LONGEST = 11  # most characters of a number that "General" shows without rounding it
_EXTRA = {".parquet": "pyarrow", ".xlsx": "openpyxl"}

Records = list[tuple[str, Any]]  # place, raw record
Parse = Callable[[Any], Mapping[str, Any]]  # raw record -> keys and values

logger = logging.getLogger(__name__)


def read_table(
    path: Path, items_per_task: int | None = None, columns: Columns = NAMED_AS_KEYS
) -> Stream:
    """Read a file as a stream; its format follows from the path's ending.

    An empty cell counts as a missing key. In cells, aliases and paraphrases are separated by a
    vertical bar, and details are JSON text.
    Raises HoldfastError when the file is missing, damaged or no table. For bad records it names the
    line of a text file, the row as a sheet numbers it, or the number of the record.
    """
    suffix = path.suffix.lower()
    with reading(path, "a table"):
        if suffix in (".csv", ".tsv"):
            records, parse = _read_text(path, columns)
        elif suffix == ".json":
            records, parse = _read_json(path)
        else:
            records, parse = _read_binary(path, columns)
    return stream_of(str(path), records, parse, path.stem, items_per_task, columns)


def records_of(
    frame: pd.DataFrame, columns: Columns = NAMED_AS_KEYS, source: str = "table"
) -> tuple[Records, Parse]:
    """The rows of a data frame with their places (``row 1``), and the function to parse one."""
    rows = enumerate(frame.itertuples(index=False, name=None), start=1)
    parse = _parser([str(name) for name in frame.columns], columns, source)
    return [(f"row {number}", values) for number, values in rows], parse


def write_table(stream: Stream, path: Path) -> None:
    """Write a stream as a table that reads back equal; its format follows from the path's ending.

    Raises HoldfastError for a text that the format cannot hold, such as an alias with a vertical
    bar, for a missing package, and when the path cannot be written.
    """
    suffix = path.suffix.lower()
    rows = [values_of(task, item) for task in stream.tasks for item in task.items]
    if suffix == ".json":
        text = json.dumps(rows, ensure_ascii=False, indent=1) + "\n"
        write_text_atomically(path, text, parents=True)
        return
    columns = ("task", *(key for key in KEYS if key != "task"))
    names = [key for key in columns if any(key in row for row in rows)]
    cells = [[_cell(key, row.get(key)) for key in names] for row in rows]
    if suffix in (".csv", ".tsv"):
        broken = [text for row in cells for text in row if "\n" in text or "\r" in text]
        if suffix == ".tsv" and broken:
            raise HoldfastError(
                f"{quoted(broken[0])} holds a line break, and in a .tsv file a row is a line; "
                "write .csv"
            )
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
        writer.writerows([names, *cells])
        write_text_atomically(path, out.getvalue(), parents=True)
        return
    pd = _pandas(suffix)
    binary = io.BytesIO()
    if suffix == ".parquet":
        pd.DataFrame(cells, columns=names).to_parquet(binary, index=False)
    else:
        _workbook(path, [names, *cells]).save(binary)
    with atomic_write(path, parents=True) as part:
        part.write_bytes(binary.getvalue())


def _workbook(path: Path, rows: list[list[str]]) -> Any:
    """An Excel workbook of text cells; by default openpyxl reads a leading ``=`` as a formula."""
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


def _read_text(path: Path, columns: Columns) -> tuple[Records, Parse]:
    tabs = path.suffix.lower() == ".tsv"
    with path.open(encoding="utf-8-sig", newline="") as file:
        blank = " \r\n" + "".join(_SEPARATORS)
        numbered = ((number, line) for number, line in enumerate(file, 1) if line.strip(blank))
        begin, line = next(numbered, (1, ""))
        records: Records = []
        try:
            names, separator = _header(path, line, columns)
            while True:
                begin += 1
                # In a .tsv file a row is a line, so that a stray quote does not swallow others.
                lines = itertools.islice(file, 1) if tabs else file
                reader = csv.reader(lines, delimiter=separator, strict=True)
                row = next(reader, None)
                if row is None:
                    break
                records.append((f"line {begin}", row))
                begin += reader.line_num - 1
        except csv.Error as error:
            raise HoldfastError(
                f"{path} line {begin}: is no table from here on ({error}); a text with quotes "
                "stands in quotes, and its own are doubled"
            ) from None
    return records, _parser(names, columns, str(path), shortest=len(names))


def _header(path: Path, line: str, columns: Columns) -> tuple[list[str], str]:
    """The column names and the separator."""
    keys = {*KNOWN_KEYS, *(name for pair in PAIRS for name in pair)}
    chosen = {name for name in (columns.question, columns.answer) if name is not None}
    for separator in _SEPARATORS:
        cells = next(csv.reader([line], delimiter=separator, strict=True), [])
        names = [cell.strip() for cell in cells]
        spellings = {*names, *map(str.lower, names)}
        # If the caller named columns, take any header: a later error lists what it has.
        if len(spellings & keys) + len(chosen & {*names} - keys) >= 2 or (
            chosen and len(names) > 1
        ):
            return names, separator
    raise HoldfastError(
        f'{path}: its first line must name the columns "question" and "answer", separated by a '
        "comma, a semicolon or a tab; other names go with --question-column and --answer-column"
    )


def _read_json(path: Path) -> tuple[Records, Parse]:
    text = path.read_text(encoding="utf-8-sig")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = reason_of(error)
        raise HoldfastError(f"{path}: is no JSON ({reason}); write a list of objects") from None
    if isinstance(content, dict):
        lists = [value for value in content.values() if isinstance(value, list)]
        content = lists[0] if len(lists) == 1 else None
    if not isinstance(content, list):
        raise HoldfastError(f"{path}: is no list of objects; write [{{...}}, {{...}}]")
    return [(f"item {n}", record) for n, record in enumerate(content, start=1)], _object


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise HoldfastError(f"is {value!r:.60}, no object; write a question and an answer")
    return without_null(value)


def _read_binary(path: Path, columns: Columns) -> tuple[Records, Parse]:
    suffix = path.suffix.lower()
    pd = _pandas(suffix)
    try:
        if suffix == ".parquet":
            # pandas' own types would turn whole numbers with a gap among them into floats.
            frame = pd.read_parquet(path, dtype_backend="pyarrow")
            return records_of(frame, columns, str(path))
        rows = [row for row in _sheet_rows(path) if any(cell is not None for cell in row[1])]
    except (FileNotFoundError, PermissionError, HoldfastError):
        raise
    except Exception as error:  # noqa: BLE001  # each library has errors of its own
        reason = reason_of(error, 200)
        raise HoldfastError(f"{path}: is no table that can be read ({reason})") from None
    if not rows:
        return [], dict
    number, header = rows[0]
    try:
        names = ["" if cell is None else _displayed(cell) for cell in header]
    except HoldfastError as error:
        raise HoldfastError(f"{path} row {number}: {error}") from None
    records = [(f"row {number}", cells) for number, cells in rows[1:]]
    return records, _parser(names, columns, str(path))


def _sheet_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    """The rows of a workbook's first sheet with their numbers: openpyxl's cells, None if empty.

    Raises whatever openpyxl raises for a file that is no workbook.
    """
    openpyxl = importlib.import_module("openpyxl")
    content = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles and dates that openpyxl cannot read
        # read_only: rows are read one by one, so that millions of empty ones cost no memory.
        books = [
            openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=data_only)
            for data_only in (True, False)  # values; formulas instead of their values
        ]
        if not books[0].worksheets:
            raise HoldfastError(f"{path}: has no sheet; write a question and an answer a row")
        sheets = [book.worksheets[0] for book in books]
        others = ", ".join(quoted(sheet.title) for sheet in books[0].worksheets[1:])
        if others:
            message = "%s: only its first sheet, %s, is read; it also has %s"
            logger.warning(message, path, quoted(sheets[0].title), others)
        for sheet in sheets:
            sheet.reset_dimensions()  # the file may state wrong ones
        pairs = zip(sheets[0].rows, sheets[1].rows, strict=True)
        for number, (cells, written) in enumerate(pairs, start=1):
            yield number, list(map(_filled, cells, written))


def _filled(cell: Any, written: Any) -> Any:
    """The cell, None if it is empty. written: the same cell, with a formula instead of its value.

    A formula without a stored value is not empty, so that it is refused later. One that gives an
    empty text has no value either, but its type is "str", and it counts as empty.
    """
    uncalculated = cell.value is None and written.data_type == "f" and cell.data_type == "n"
    return cell if cell.value is not None or uncalculated else None


def _displayed(cell: Any) -> str:
    """The text that a sheet shows in a cell. Raises HoldfastError if only its format decides it."""
    value, code = cell.value, cell.number_format
    if isinstance(value, str) and cell.data_type != "e":
        return value
    if isinstance(value, (int, float)) and code in _PLAIN:
        text = str(value).upper() if isinstance(value, bool) else f"{value:.15g}"
        if len(text) <= _LONGEST and "e" not in text:
            return text
    place = f"cell {cell.coordinate} of sheet {quoted(cell.parent.title)}"
    if value is None:
        raise HoldfastError(f"{place} holds a formula without its value; calculate and save it")
    if cell.data_type == "e":
        raise HoldfastError(f"{place} holds the error {value}; correct it")
    raise HoldfastError(
        f"{place} holds {quoted(value)} in the format {quoted(code)}; save the sheet as .csv, "
        "which holds what it shows, or format the cell as text"
    )


def _pandas(suffix: str) -> Any:
    import pandas as pd

    needed = _EXTRA[suffix]
    if importlib.util.find_spec(needed) is None:
        raise HoldfastError(
            f'{suffix} files need the package {needed}; pip install "holdfast[tables]"'
        )
    return pd


def _parser(names: Sequence[str], columns: Columns, source: str, shortest: int = 0) -> Parse:
    """A function that turns the cells of a row into a mapping.

    names: of the columns; shortest: cells that a row must have unless it is blank; 0: any number.
    """
    try:
        heads = known_names([name.strip() for name in names], columns)
    except HoldfastError as error:
        raise HoldfastError(f"{source}: {error}") from None
    return partial(_cells, heads, _needed(columns), shortest)


def named_cells(columns: Columns, row: Mapping[str, Any]) -> dict[str, Any]:
    """The filled cells of a row that is a mapping, as those of a table."""
    return _cells(known_names(list(row), columns), _needed(columns), 0, list(row.values()))


def _needed(columns: Columns) -> set[str]:
    return {columns.question or "question", columns.answer or "answer"}


def _cells(names: list[str], needed: set[str], shortest: int, row: Sequence[Any]) -> dict[str, Any]:
    """The filled cells of a row by column name; text is stripped, known keys are typed."""
    columns = {*KNOWN_KEYS, *needed}
    heads = itertools.chain(names, itertools.repeat(""))
    values = [plain(cell, as_shown=name in columns) for name, cell in zip(heads, row, strict=False)]
    values = [value.strip() if isinstance(value, str) else value for value in values]
    if all(value is None or value == "" for value in values):
        return {}
    if len(values) < shortest:
        raise HoldfastError("has fewer cells than the first line; put quotes around a text")
    beyond = [value for value in values[len(names) :] if value not in (None, "")]
    if beyond and shortest:
        raise HoldfastError("has more cells than the first line; put quotes around a text")
    if beyond:
        raise _nameless(beyond[0])
    record: dict[str, Any] = {}
    for place, (name, value) in enumerate(itertools.zip_longest(names, values[: len(names)])):
        if value is None or value == "":
            if name in needed:
                record[name] = ""
            continue
        if not name and place == 0 and str(value).isdecimal():
            continue  # pandas writes the numbers of rows into a first column without a name
        if not name:
            raise _nameless(value)
        record[name] = _typed(name, value, needed)
    return record


def _nameless(value: Any) -> HoldfastError:
    return HoldfastError(f"has {quoted(value)} in a column without a name; give it one")


def _typed(name: str, value: Any, needed: set[str]) -> Any:
    if name in _LISTS and isinstance(value, str):
        return [text for part in value.split(_BAR) if (text := part.strip())]
    if name == "details" and isinstance(value, str):
        return details_of(value)
    if name in {*KEYS, *needed} and not isinstance(value, (str, list, dict)):
        return str(value)
    return value


def plain(cell: Any, *, as_shown: bool = False) -> Any:
    """A cell as a JSON value, None if it is empty. as_shown: the text that a sheet shows in it."""
    if hasattr(cell, "number_format"):
        return _displayed(cell) if as_shown else plain(cell.value)
    if isinstance(cell, bytes):
        try:
            return cell.decode()
        except UnicodeDecodeError:
            raise HoldfastError(f"holds bytes that are no UTF-8 text, {cell!r:.40}") from None
    if hasattr(cell, "tolist"):  # numpy's scalars and arrays
        cell = cell.tolist()
    if isinstance(cell, Mapping):
        return {str(key): plain(value) for key, value in cell.items()}
    if isinstance(cell, (list, tuple)):
        return [plain(value) for value in cell]
    if cell is None or isinstance(cell, (str, int)):
        return cell
    if str(cell) in ("nan", "NaT", "<NA>"):
        return None
    if isinstance(cell, float):
        return int(cell) if cell.is_integer() else cell
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)
