"""A workbook's facts are what its sheet shows, or are refused with the cell and what to do."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
from fractions import Fraction

import openpyxl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.streams import load_stream
from holdfast.streams.number_formats import UnknownFormatError, shown

DAY = dt.datetime(2026, 1, 2)
MOMENT = dt.datetime(2026, 11, 26, 9, 5, 7)
SHOWN = [
    # value, number format, what every spreadsheet program shows
    (1040, "00000", "01040"),
    (0.15, "0%", "15%"),
    (0.155, "0.0%", "15.5%"),
    (3.1, "0.00", "3.10"),
    (1234.5, '#,##0.00\\ "kr"', "1,234.50 kr"),
    (1234.5, "#,##0.00 [$kr-41D]", "1,234.50 kr"),
    (-1234.5, "$#,##0.00", "-$1,234.50"),
    (-5, "0.00;[Red](0.00)", "(5.00)"),
    (0, "0.0;-0.0;0", "0"),
    (1.005, "0.00", "1.01"),  # halves go away from zero, as decimals
    (3, "0.##", "3."),
    (0.5, "#.0", ".5"),
    (1000000, "#,##0", "1,000,000"),
    (12, '0" %"', "12 %"),
    (12, 'General" kg"', "12 kg"),
    (1879, "General", "1879"),
    (12345678901, "General", "12345678901"),
    (0.1 + 0.2, "General", "0.3"),
    (3.25, "@", "3.25"),
    (True, "General", "TRUE"),
    ("01040", "General", "01040"),
    ("3.10", "0.00", "3.10"),
    ("rye", "@", "rye"),
    ("rye", "0;-0;0;@", "rye"),
    (DAY, "yyyy-mm-dd", "2026-01-02"),
    (DAY, "d/m/yyyy", "2/1/2026"),
    (DAY, "dd.mm.yy", "02.01.26"),
    (DAY, "mm/dd/yyyy;@", "01/02/2026"),
    (DAY, "[$-409]mmmm d, yyyy", "January 2, 2026"),
    (DAY, "[$-809]d mmm yyyy", "2 Jan 2026"),
    (MOMENT, "yyyy-mm-dd hh:mm:ss", "2026-11-26 09:05:07"),
    (MOMENT, "d/m/yyyy h:mm", "26/11/2026 9:05"),
    (dt.time(9, 5), "h:mm", "9:05"),
    (dt.time(9, 5, 7), "mm:ss", "05:07"),
]
REFUSED = [
    (DAY, "mm-dd-yy"),  # the default for dates: as the computer's country has it
    (DAY, "d-mmm-yy"),  # names of months are of the computer's language
    (DAY, "[$-F800]dddd, mmmm dd, yyyy"),
    (DAY, "[$-409]dddd"),
    (dt.datetime(1900, 1, 5), "yyyy-mm-dd"),
    (dt.time(9, 5), "yyyy-mm-dd"),
    (MOMENT, "h:mm AM/PM"),
    (dt.timedelta(hours=30), "[h]:mm"),
    (1 / 3, "General"),  # as wide as the column
    (123456789012, "General"),
    (0.00001, "General"),
    (-0.001, "0.00"),
    (10**15, "0"),
    (1e6, "0,"),
    (1e6, "0.00E+00"),
    (0.5, "# ?/?"),
    (5, "[>3]0;0.0"),
    (5, "0-0"),
    (5, ";;;"),
    (5, '"none"'),
    (5, "_-* #,##0.00_-"),
    (-5, "#,##0_);(#,##0)"),
    ("rye", '"Dr. "@'),
    ("rye", ";;;"),
]


def test_what_a_sheet_shows_is_the_fact(tmp_path):
    facts = [[f"What is {number}?", row[:2]] for number, row in enumerate(SHOWN)]
    assert [shown(value, code) for value, code, _ in SHOWN] == [text for *_, text in SHOWN]
    assert answers(sheet(tmp_path, [["question", "answer"], *facts])) == [t for *_, t in SHOWN]


def test_a_format_that_cannot_be_told_is_refused(tmp_path):
    for value, code in REFUSED:
        with pytest.raises(UnknownFormatError):
            shown(value, code)
    path = sheet(tmp_path, [["question", "answer"], ["What?", REFUSED[0]]])
    with pytest.raises(HoldfastError) as refused:
        load_stream(path)
    line = str(refused.value)
    assert line.startswith(f'{path} row 2: cell B2 of sheet "Facts" holds ')
    assert line.endswith("; format it as text and write what it shows")
    assert "\n" not in line


@given(st.decimals(-(10**8), 10**8, places=2).filter(lambda number: abs(number) >= 1))
def test_a_number_with_two_decimals_comes_out_as_typed(number):
    assert shown(float(number), "0.00") == f"{number:.2f}"
    assert shown(float(number), "#,##0.00") == f"{number:,.2f}"
    assert Fraction(shown(float(number) / 100, "0.00%").removesuffix("%")) == Fraction(number)


@given(
    st.integers() | st.floats() | st.text(), st.text('0#.,;@%_-*[]\\" dmyhsGeneral?/E', max_size=9)
)
def test_any_format_is_shown_or_refused(value, code):
    with contextlib.suppress(UnknownFormatError):
        assert isinstance(shown(value, code), str)


def test_a_formula_counts_by_its_value_and_without_one_is_refused(tmp_path):
    rows = [["question", "answer"], ["What?", "=1+1"]]
    path = sheet(tmp_path, rows, formulas=True)
    with pytest.raises(HoldfastError, match=r"cell B2 .* holds a formula without its value; calcu"):
        load_stream(path)


def test_an_error_of_a_sheet_is_no_fact(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["question", "answer"])
    book.active.append(["What?", "#N/A"])
    book.active["B2"].data_type = "e"
    book.save(tmp_path / "facts.xlsx")
    with pytest.raises(
        HoldfastError, match=r"cell B2 of sheet .* holds the error #N/A; correct it"
    ):
        load_stream(tmp_path / "facts.xlsx")


def test_sheets_that_are_not_read_are_told(tmp_path, caplog):
    book = openpyxl.Workbook()
    book.active.title = "Facts"
    book.create_sheet("More")
    for row in (["question", "answer"], ["What?", "rye"]):
        book["Facts"].append(row)
    book.save(tmp_path / "facts.xlsx")
    with caplog.at_level(logging.WARNING):
        assert answers(tmp_path / "facts.xlsx") == ["rye"]
    assert 'only its first sheet, "Facts", is read; it also has "More"' in caplog.text


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
    suffix = path.suffix
    if suffix in (".csv", ".tsv"):
        mark = "," if suffix == ".csv" else "\t"
        lines = [mark.join(text or "" for text in row) for row in [head, *rows]]
        path.write_text("".join(f"{line}\n" for line in lines))
    elif suffix == ".xlsx":
        sheet(path.parent, [head, *rows])
    elif suffix == ".parquet":
        columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(len(head))]
        pa.parquet.write_table(pa.table(columns, names=head), path)
    else:
        objects = [json.dumps(dict(zip(head, row, strict=True))) for row in rows]
        path.write_text("".join(f"{line}\n" for line in objects))
    return path


@pytest.mark.parametrize("name", PLACES)
def test_capitals_and_blank_rows_are_alike_in_every_format(tmp_path, name):
    rows = [["Who?", "Ann", "x"], [None] * 3, ["", "  ", None], ["Why?", "Rain", None]]
    path = written(tmp_path / name, ["Question", "ANSWER", " Aliases"], rows)
    if name == "facts.jsonl":
        path.write_text(path.read_text().replace('"x"', '["x"]').replace(', " Aliases": null', ""))
    (task,) = load_stream(path).tasks
    assert [(item.question, item.answer, item.aliases) for item in task.items] == [
        ("Who?", "Ann", ("x",)),
        ("Why?", "Rain", ()),
    ]
    assert [item.details for item in task.items] == [{}, {}]


@pytest.mark.parametrize(("name", "place"), PLACES.items())
def test_a_fault_is_told_with_the_place_where_the_file_has_it(tmp_path, name, place):
    rows = [["Who?", "Ann"], [None] * 2, ["When?", "Now"], ["Why?", ""]]
    path = written(tmp_path / name, ["question", "answer"], rows)
    with pytest.raises(HoldfastError) as refused:
        load_stream(path)
    assert str(refused.value) == (
        f'{path} {place}: "answer" is empty; every item needs a question and an answer'
    )


@pytest.mark.parametrize("name", ["facts.csv", "facts.tsv", "facts.xlsx"])
def test_a_row_above_the_names_and_a_column_without_one(tmp_path, name):
    path = written(tmp_path / name, [None, None], [["question", "answer"], ["Who?", "Ann"]])
    assert answers(path) == ["Ann"]
    path = written(tmp_path / name, ["question", "answer", None], [["Who?", "Ann", "lost"]])
    with pytest.raises(HoldfastError, match='2: has "lost" in a column without a name; give it on'):
        load_stream(path)


@pytest.mark.parametrize("name", [*PLACES])
def test_one_column_twice_is_refused_in_every_format(tmp_path, name):
    path = written(tmp_path / name, ["question", "answer", "Answer"], [["Who?", "Ann", "Bo"]])
    with pytest.raises(HoldfastError, match='has two columns "answer"; keep one'):
        load_stream(path)


def test_a_line_number_is_that_at_which_a_row_begins(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text('question,answer\n"Who\nis it?",Ann\n"Why\nso?",\n')
    with pytest.raises(HoldfastError, match=r"facts.csv line 4: "):
        load_stream(path)


@pytest.mark.parametrize("line", ['"Who?\tAnn', 'Who?\t"Ann', '"Big" apple?\tyes'])
def test_quotes_in_a_file_with_tabs_take_no_other_row_along(tmp_path, line):
    path = tmp_path / "facts.tsv"
    path.write_text(f'question\tanswer\n{line}\nWhat"\tBob\nIs it "so"?\tyes, "so"\n')
    with pytest.raises(HoldfastError, match=r"facts.tsv line 2: is no table from here on"):
        load_stream(path)
    path.write_text('question\tanswer\nIs it "so"?\t"""Yes"""\n"a,b"\t5" disk\n')
    (task,) = load_stream(path).tasks
    assert [(item.question, item.answer) for item in task.items] == [
        ('Is it "so"?', '"Yes"'),
        ("a,b", '5" disk'),
    ]


def test_bytes_are_texts_or_refused(tmp_path):
    path = tmp_path / "facts.parquet"
    for content, fine in (("Århus".encode(), True), (b"\xff", False)):
        table = pa.table({"question": ["Where?"], "answer": pa.array([content], pa.binary())})
        pa.parquet.write_table(table, path)
        if fine:
            assert answers(path) == ["Århus"]
        else:
            with pytest.raises(HoldfastError, match=r"row 1: holds bytes that are no UTF-8 text"):
                load_stream(path)


def test_a_long_number_beside_a_gap_keeps_its_digits(tmp_path):
    path = tmp_path / "facts.parquet"
    numbers = pa.array([9007199254740993, None], pa.int64())
    columns = {"question": ["a?", "b?"], "answer": ["1", "2"], "account": numbers}
    pa.parquet.write_table(pa.table(columns), path)
    (task,) = load_stream(path).tasks
    assert task.items[0].details == {"account": 9007199254740993}


def answers(path):
    return [item.answer for task in load_stream(path).tasks for item in task.items]


def sheet(folder, rows, *, formulas=False):
    """A workbook of texts, or of pairs of a value and its number format."""
    book = openpyxl.Workbook()
    book.active.title = "Facts"
    for number, row in enumerate(rows, start=1):
        for place, content in enumerate(row, start=1):
            value, code = content if isinstance(content, tuple) else (content, None)
            if value is None:
                continue
            cell = book.active.cell(number, place, value)
            if isinstance(value, str) and not formulas:
                cell.data_type = "s"
            if code is not None:
                cell.number_format = code
    book.save(folder / "facts.xlsx")
    return folder / "facts.xlsx"
