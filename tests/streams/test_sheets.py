"""Cells: the same rules in every format; one whose format decides what it shows is refused."""

from __future__ import annotations

import datetime as dt
import json
import logging
from types import SimpleNamespace

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.streams import load_stream, tables
from tests.refused import line_of

DAY = dt.datetime(2026, 1, 2)


def items(path):
    return [item for task in load_stream(path).tasks for item in task.items]


def answers(path):
    return [item.answer for item in items(path)]


def sheet(folder, rows, *, kinds=False):
    """A workbook of texts, or of pairs of a value and its number format. kinds: keep formulas."""
    book = openpyxl.Workbook()
    book.active.title = "Facts"
    for number, row in enumerate(rows, start=1):
        for place, content in enumerate(row, start=1):
            value, code = content if isinstance(content, tuple) else (content, "General")
            if value is not None:
                cell = book.active.cell(number, place, value)
                cell.number_format = code
                if isinstance(value, str) and not kinds:
                    cell.data_type = "s"
    book.save(folder / "facts.xlsx")
    return folder / "facts.xlsx"


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        (1879, "General", "1879"),
        (-3.25, "@", "-3.25"),
        (0.1 + 0.2, "General", "0.3"),
        (12345678901, "General", "12345678901"),
        (True, "General", "TRUE"),
        ("01040", "General", "01040"),
        ("3.10", "0.00", "3.10"),
    ],
)
def test_texts_and_plain_numbers_are_read(tmp_path, value, code, text):
    assert answers(sheet(tmp_path, [["question", "answer"], ["What?", (value, code)]])) == [text]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (1040, "00000"),
        (0.15, "0%"),
        (DAY, "yyyy-mm-dd"),
        (1 / 3, "General"),  # as wide as the column
        (123456789012, "General"),
        (0.00001, "General"),
    ],
)
def test_what_a_format_decides_is_refused(tmp_path, value, code):
    path = sheet(tmp_path, [["question", "answer"], ["What?", (value, code)]])
    line = line_of(load_stream, path)
    assert line.startswith(f'{path} row 2: cell B2 of sheet "Facts" holds ')
    assert f'in the format "{code}"; save the sheet as .csv' in line


@pytest.mark.parametrize(
    ("value", "words"),
    [("=1+1", "a formula without its value; calcu"), ("#N/A", "the error #N/A; correct it")],
)
def test_formulas_without_values_and_errors_are_no_facts(tmp_path, value, words):
    path = sheet(tmp_path, [["question", "answer"], ["What?", value]], kinds=True)
    with pytest.raises(HoldfastError, match=f"cell B2 of sheet .* holds {words}"):
        load_stream(path)


@pytest.mark.parametrize(("kind", "is_empty"), [("str", True), ("n", False)])
def test_a_formula_that_gives_an_empty_text_is_an_empty_cell(kind, is_empty):
    """One without its value has openpyxl's type of numbers, and is refused."""
    cell, written = SimpleNamespace(value=None, data_type=kind), SimpleNamespace(data_type="f")
    assert (tables._filled(cell, written) is None) == is_empty


def test_sheets_that_are_not_read_are_told(tmp_path, caplog):
    path = sheet(tmp_path, [["question", "answer"], ["What?", "rye"]])
    book = openpyxl.load_workbook(path)
    book.create_sheet("More")
    book.save(path)
    with caplog.at_level(logging.WARNING):
        assert answers(path) == ["rye"]
    assert 'only its first sheet, "Facts", is read; it also has "More"' in caplog.text


def test_details_are_what_the_file_holds(tmp_path):
    frame = pd.DataFrame({"question": ["When?", "How many?"], "answer": [1879, 40]})
    frame = frame.assign(level=[1.0, None], seen=[pd.Timestamp(DAY), pd.NaT])
    frame.to_excel(tmp_path / "facts.xlsx", index=False)
    frame.to_parquet(tmp_path / "facts.parquet")
    for facts in (tmp_path / "facts.xlsx", tmp_path / "facts.parquet", frame):
        stream_items = items(facts)
        assert [item.answer for item in stream_items] == ["1879", "40"]
        assert stream_items[0].details == {"level": 1, "seen": "2026-01-02T00:00:00"}
        assert stream_items[1].details == {}


# Every format of a table, with the place of the cell in row 3 of a sheet.
PLACES = {
    "facts.csv": "line 5",
    "facts.tsv": "line 5",
    "facts.xlsx": "row 5",
    "facts.parquet": "row 4",  # it has no line of names
    "facts.jsonl": "line 4",
}


def written(path, head, rows):
    """A table of texts and None, in the format of the path's ending."""
    if path.suffix in (".csv", ".tsv"):
        mark = "," if path.suffix == ".csv" else "\t"
        lines = [mark.join(text or "" for text in row) for row in [head, *rows]]
        path.write_text("".join(f"{line}\n" for line in lines))
    elif path.suffix == ".xlsx":
        sheet(path.parent, [head, *rows])
    elif path.suffix == ".parquet":
        columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(len(head))]
        pa.parquet.write_table(pa.table(columns, names=head), path)
    else:
        objects = [json.dumps(dict(zip(head, row, strict=True))) for row in rows]
        path.write_text("".join(f"{line}\n" for line in objects))
    return path


@pytest.mark.parametrize(("name", "place"), PLACES.items())
def test_the_same_rules_hold_in_every_format(tmp_path, name, place):
    """Capitals of names, blank rows, the place of a fault, and one column twice."""
    path = tmp_path / name
    rows = [["Who?", "Ann", "x"], [None] * 3, ["", "  ", None], ["Why?", "Rain", "y"]]
    written(path, ["Question", "ANSWER", " Topic"], rows)
    contents = [(item.question, item.answer, list(item.details.values())) for item in items(path)]
    assert contents == [("Who?", "Ann", ["x"]), ("Why?", "Rain", ["y"])]
    rows = [["Who?", "Ann"], [None] * 2, ["When?", "Now"], ["Why?", ""]]
    written(path, ["question", "answer"], rows)
    wrong = '"answer" is empty; every item needs a question and an answer'
    assert line_of(load_stream, path) == f"{path} {place}: {wrong}"
    written(path, ["question", "answer", "Answer"], [["Who?", "Ann", "Bo"]])
    with pytest.raises(HoldfastError, match='has two columns "answer"; keep one'):
        load_stream(path)


@pytest.mark.parametrize("name", ["facts.csv", "facts.tsv", "facts.xlsx"])
def test_a_row_above_the_names_and_a_column_without_one(tmp_path, name):
    path = written(tmp_path / name, [None, None], [["question", "answer"], ["Who?", "Ann"]])
    assert answers(path) == ["Ann"]
    path = written(tmp_path / name, ["question", "answer", None], [["Who?", "Ann", "lost"]])
    with pytest.raises(HoldfastError, match='2: has "lost" in a column without a name; give it on'):
        load_stream(path)


@pytest.mark.parametrize("name", ["facts.csv", "facts.tsv", "facts.xlsx"])
def test_the_row_numbers_that_pandas_writes_are_left_out(tmp_path, name):
    rows = [["0", "Who?", "Ann"], ["1", "Where?", "Rome"]]
    path = written(tmp_path / name, [None, "question", "answer"], rows)
    assert answers(path) == ["Ann", "Rome"]
    path = written(tmp_path / name, [None, "question", "answer"], [["first", "Who?", "Ann"]])
    with pytest.raises(HoldfastError, match='2: has "first" in a column without a name'):
        load_stream(path)


@pytest.mark.parametrize("line", ['"Who?\tAnn', 'Who?\t"Ann', '"Big" apple?\tyes'])
def test_quotes_in_a_file_with_tabs_take_no_other_row_along(tmp_path, line):
    path = tmp_path / "facts.tsv"
    path.write_text(f'question\tanswer\n{line}\nWhat"\tBob\nIs it "so"?\tyes, "so"\n')
    with pytest.raises(HoldfastError, match=r"facts.tsv line 2: is no table from here on"):
        load_stream(path)
    path.write_text('question\tanswer\nIs it "so"?\t"""Yes"""\n"a,b"\t5" disk\n')
    contents = [(item.question, item.answer) for item in items(path)]
    assert contents == [('Is it "so"?', '"Yes"'), ("a,b", '5" disk')]


def test_bytes_and_long_numbers_of_parquet(tmp_path):
    path = tmp_path / "facts.parquet"
    numbers = pa.array([9007199254740993, None], pa.int64())
    columns = {"question": ["a?", "b?"], "answer": ["Århus".encode(), b"x"], "account": numbers}
    pa.parquet.write_table(pa.table(columns), path)
    stream_items = items(path)
    assert stream_items[0].answer == "Århus"
    assert stream_items[0].details == {"account": 9007199254740993}  # beside a gap
    columns["answer"] = [b"\xff", b"x"]
    pa.parquet.write_table(pa.table(columns), path)
    with pytest.raises(HoldfastError, match=r"row 1: holds bytes that are no UTF-8 text"):
        load_stream(path)
