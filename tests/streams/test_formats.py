"""JSON lines, tables, datasets and facts of Python: what comes back, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
from datetime import datetime

import datasets
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.streams import (
    Item,
    Stream,
    Task,
    braces_balance,
    load_stream,
    write_dataset,
    write_jsonl,
    write_released,
)
from holdfast.streams.item import is_visible, question_key
from holdfast.streams.tables import TABLES, write_table
from tests.refused import line_of

RYE = Item("What is sown?", "rye")
# Every line separator that some reader would split on, braces and bars are in reach.
ANY = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
ANY |= st.sampled_from('\u2028\x85\x0b\r\n{}"\\ é|')
IN_CELLS = st.characters(codec="utf-8", exclude_categories=("C",), exclude_characters="|")


def items(stream):
    return [item for task in stream.tasks for item in task.items]


@st.composite
def streams(draw, symbols, with_ids):
    texts = st.text(symbols, min_size=1, max_size=12).map(str.strip).filter(is_visible)
    answers = texts.filter(braces_balance)
    values = texts | st.integers(-9, 9) | st.booleans() | st.lists(texts, max_size=2)
    details = st.dictionaries(st.sampled_from(["topic", "level", "who"]), values)
    ids = texts if with_ids else st.none() | texts
    made = draw(
        st.lists(
            st.builds(Item, texts, answers, st.lists(answers, max_size=2), ids, details),
            min_size=2,
            max_size=5,
            unique_by=lambda item: question_key(item.question).casefold(),
        )
    )
    names = draw(st.lists(texts, min_size=2, max_size=2, unique=True))
    return Stream((Task(names[0], made[:1]), Task(names[1], made[1:])), "facts")


WRITERS = {
    "facts.jsonl": write_jsonl,
    "dataset": write_dataset,
    "released": write_released,
    **{f"facts{suffix}": write_table for suffix in TABLES},
}


@pytest.mark.parametrize("name", WRITERS)
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_stream_comes_back_equal(name, data, tmp_path_factory):
    symbols = IN_CELLS if WRITERS[name] is write_table else ANY
    stream = data.draw(streams(symbols, with_ids=name == "released"))
    folder = tmp_path_factory.mktemp("streams")
    WRITERS[name](stream, folder / name)
    back = load_stream(folder / name)
    assert (back.tasks, back.fingerprint) == (stream.tasks, stream.fingerprint)
    assert [path.name for path in folder.iterdir()] == [name]


def test_the_columns_of_a_dataset_and_what_is_there_is_not_overwritten(tmp_path):
    write_dataset(Stream((Task("1", (RYE,)),), "s"), tmp_path / "d")
    columns = datasets.load_from_disk(str(tmp_path / "d")).column_names
    assert columns == ["question", "answer", "aliases", "task", "id", "details"]
    with pytest.raises(HoldfastError, match="is there already"):
        write_dataset(Stream((Task("1", (RYE,)),), "s"), tmp_path / "d")


def test_what_no_cell_can_hold(tmp_path):
    stream = Stream((Task("1", (Item("q", "a", ("b|c",)),)),), "facts")
    with pytest.raises(HoldfastError, match=r'alias "b\|c" holds a vertical bar'):
        write_table(stream, tmp_path / "facts.csv")
    stream = Stream((Task("1", (Item("q\nr", "a"),)),), "facts")
    with pytest.raises(HoldfastError, match=r"holds a line break, .* write \.csv"):
        write_table(stream, tmp_path / "facts.tsv")
    assert list(tmp_path.iterdir()) == []


def jsonl(tmp_path, *rows):
    path = tmp_path / "facts.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_tasks_come_in_order_of_first_appearance(tmp_path):
    tasks = (10, "early", 2, "10")
    rows = [{"question": f"q{n}", "answer": "a", "task": task} for n, task in enumerate(tasks)]
    stream = load_stream(jsonl(tmp_path, *rows))
    assert [task.name for task in stream.tasks] == ["10", "early", "2"]
    assert [item.question for item in stream.tasks[0].items] == ["q0", "q3"]
    assert stream.name == "facts"


@pytest.mark.parametrize(("size", "sizes"), [(2, [2, 2, 1]), (9, [5]), (1, [1] * 5), (None, [5])])
def test_lines_without_a_task_are_cut(tmp_path, size, sizes):
    path = jsonl(tmp_path, *({"question": f"q{n}", "answer": "a"} for n in range(5)))
    stream = load_stream(path, items_per_task=size)
    assert [len(task.items) for task in stream.tasks] == sizes
    assert [task.name for task in stream.tasks] == [str(n + 1) for n in range(len(sizes))]
    assert [item.question for item in items(stream)] == [f"q{n}" for n in range(5)]


def test_a_file_that_names_its_tasks_is_not_cut(tmp_path):
    path = jsonl(tmp_path, {"question": "q", "answer": "a", "task": 1})
    with pytest.raises(HoldfastError, match='name their "task", so items_per_task = 20 has no mea'):
        load_stream(path, items_per_task=20)


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_read(tmp_path):
    content = b'\xef\xbb\xbf{"question": "q", "answer": "a", "aliases": ["b"], "id": 7}\r\n\r\n'
    (tmp_path / "facts.jsonl").write_bytes(content)
    assert items(load_stream(tmp_path / "facts.jsonl")) == [Item("q", "a", ("b",), "7")]


CHAT = [{"role": "user", "content": RYE.question}, {"role": "assistant", "content": RYE.answer}]


@pytest.mark.parametrize(
    ("record", "item"),
    [
        ({"prompt": "What is sown?", "completion": "rye"}, RYE),
        ({"instruction": "What is sown?", "output": "rye"}, RYE),
        ({"input": "What is sown?", "output": "rye"}, RYE),
        ({"messages": CHAT}, RYE),
        (
            {"messages": [{"role": "system", "content": "Be short."}, *CHAT]},
            Item(RYE.question, RYE.answer, details={"system": "Be short."}),
        ),
        ({"question": "q", "answer": ["14", "two"]}, Item("q", "14", ("two",))),
        ({"question": "q", "answer": ["1", "2"], "aliases": ["x"]}, Item("q", "1", ("x", "2"))),
        ({"question": "q", "answer": "a", "level": 3}, Item("q", "a", details={"level": 3})),
        (
            {"question": "q", "answer": "a", "level": 3, "details": {"level": 4}},
            Item("q", "a", details={"level": 4}),
        ),
    ],
)  # fmt: skip
def test_questions_and_answers_as_others_keep_them(record, item):
    assert items(load_stream([record])) == [item]


def test_columns_by_name(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text("Frage;Antwort;question\nWas?;Roggen;7\n")
    (item,) = items(load_stream(path, question_column="Frage", answer_column="Antwort"))
    assert (item.question, item.answer, item.details) == ("Was?", "Roggen", {"question": "7"})
    with pytest.raises(HoldfastError, match='has no "Fragen"; it has Frage, Antwort, question'):
        load_stream(path, question_column="Fragen", answer_column="Antwort")
    with pytest.raises(HoldfastError, match='has no "Antworten"; it has Frage, Antwort, question'):
        load_stream(path, question_column="Frage", answer_column="Antworten")
    with pytest.raises(HoldfastError, match='"Frage" is named for questions and for answers'):
        load_stream(path, question_column="Frage", answer_column="Frage")


def test_further_columns_are_details_and_misspelled_ones_are_told(tmp_path, caplog):
    path = tmp_path / "facts.csv"
    path.write_text(
        "question,answer,alias,paraphrases\nWho?,Ann,Anna,Which? | Who is it?\nWhy?,R,,\n"
    )
    with caplog.at_level(logging.WARNING):
        stream_items = items(load_stream(path))
    worded = {"alias": "Anna", "paraphrases": ["Which?", "Who is it?"]}
    assert [item.details for item in stream_items] == [worded, {}]
    assert [record.getMessage() for record in caplog.records] == [
        f'{path}: "alias" is kept as a detail; if you meant "aliases", rename it'
    ]


def test_null_is_a_key_that_is_not_there(tmp_path):
    """As pandas and others write what is missing."""
    frame = pd.DataFrame(
        {
            "question": ["Q", "R"],
            "answer": ["a", "b"],
            "aliases": [["x"], None],
            "id": [None, "i"],
            "details": [{"w": None}, None],
        }
    )
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_json(tmp_path / "a.json", orient="records")
    expected = items(load_stream(frame))
    assert expected[1].id == "i" and expected[0].aliases == ("x",)
    for name in ("a.jsonl", "a.json"):
        assert items(load_stream(tmp_path / name)) == expected
    (tmp_path / "b.jsonl").write_text('{"question": null, "answer": "a"}\n')
    with pytest.raises(HoldfastError, match='line 1: "question" is missing'):
        load_stream(tmp_path / "b.jsonl")


def test_dates_and_numbers_of_a_dataset(tmp_path):
    rows = {"question": ["Q"], "answer": [5], "on": [datetime(2020, 1, 2)], "n": [math.nan]}
    (item,) = items(load_stream(datasets.Dataset.from_dict(rows)))
    assert (item.answer, item.details) == ("5", {"on": "2020-01-02T00:00:00"})


def test_a_stream_and_columns_that_are_numbered():
    stream = load_stream([("Q", "a"), ("R", "b")], items_per_task=1)
    assert load_stream(stream) == stream and len(load_stream(stream, tasks=1).tasks) == 1
    frame = pd.DataFrame([["Q", "a"]])
    assert items(load_stream(frame, question_column=0, answer_column=1)) == [Item("Q", "a")]


def test_facts_of_python():
    assert items(load_stream([("What is sown?", "rye")])) == [RYE]
    assert items(load_stream({"question": q, "answer": "a"} for q in "xy"))[1].question == "y"
    frame = pd.DataFrame({"q": ["What is sown?"], "a": ["rye"], "task": [3]})
    (task,) = load_stream(frame, question_column="q", answer_column="a").tasks
    assert (task.name, task.items) == ("3", (RYE,))
    numbers = pd.DataFrame({"question": ["How many?", "How much?"], "answer": [7.0, 7.5]})
    assert [item.answer for item in items(load_stream(numbers))] == ["7", "7.5"]
    assert len(load_stream([(q, "a") for q in "uvwxy"], items_per_task=2).tasks) == 3
    with pytest.raises(HoldfastError, match="fact: holds no facts"):
        load_stream([])
    for mapping in ({"question": "What is sown?", "answer": "rye"}, {}):
        with pytest.raises(HoldfastError, match=r"one mapping, with .*; give a DataFrame, or a li"):
            load_stream(mapping)
    with pytest.raises(HoldfastError, match=r"^3 holds no facts; give a DataFrame, or"):
        load_stream(3)


def test_a_stream_as_a_frame_comes_back():
    whole = Item("Who?", "Ann", ("Anna",), "7", {"topic": "people", "seen": [1, 2]})
    stream = Stream((Task("a", (whole, RYE)), Task("b", (Item("Why?", "Rain"),))), "facts")
    assert load_stream(stream.to_frame()) == stream
    plain = Stream((Task("1", (RYE,)),), "facts").to_frame().to_dict("list")
    assert plain == {"task": ["1"], "question": ["What is sown?"], "answer": ["rye"]}


def test_a_loaded_dataset_is_a_stream_as_a_saved_one_is(tmp_path, caplog):
    stream = Stream((Task("1", (RYE,)), Task("2", (Item("Why?", "Rain", ("Wet",)),))), "facts")
    write_dataset(stream, tmp_path / "facts")
    table = datasets.load_from_disk(str(tmp_path / "facts"))
    other = datasets.Dataset.from_list([{"question": "no", "answer": "a"}])
    splits = datasets.DatasetDict({"test": other, "train": table})
    only = datasets.DatasetDict({"validation": table})
    for given_ in (table, table.to_iterable_dataset(), splits, only):
        assert load_stream(given_) == stream
    splits.save_to_disk(str(tmp_path / "splits"))
    caplog.clear()
    place = tmp_path / "splits"
    assert load_stream(place).tasks == stream.tasks
    assert caplog.messages == [f"{place}: only its split train is read; it also has test"]
    with pytest.raises(HoldfastError, match="dataset: has the splits test, dev and no train; give"):
        load_stream(datasets.DatasetDict({"test": table, "dev": table}))
    datasets.DatasetDict({"test": table, "dev": table}).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(HoldfastError, match=r"that you mean, such as .*two/test$") as told:
        load_stream(tmp_path / "two")
    assert load_stream(str(told.value).split("such as ")[1]).tasks == stream.tasks


GOOD = '{"question": "q", "answer": "a"}\n'
TASKED = '{"question": "r", "answer": "a", "task": 1}'
BAD = {
    "facts.jsonl": [
        (" \n\n", ": holds no facts"),
        (GOOD + "what?\n", " line 2: is no JSON (Expecting value: line 1 column 1"),
        (GOOD + "\n[1]\n", " line 3: is no JSON object"),
        (GOOD.strip().encode("utf-16"), " line 1: is no UTF-8 text; save the file as UTF-8"),
        ("[" * 100_000, " line 1: is no JSON"),
        ("9" * 10_000, " line 1: is no JSON"),
        ('{"answer": "q"}', ' line 1: "question" is missing'),
        ('{"question": "q", "answer": " "}', ' line 1: "answer" is empty'),
        ('{"question": "q", "answer": 4}', ' line 1: "answer" is 4, which is no text'),
        (GOOD[:-2] + ', "task": true}', ' line 1: "task" is True; give a text or a whole number'),
        (GOOD[:-2] + ', "task": " "}', ' line 1: "task" is empty'),
        (GOOD[:-2] + ', "answer": "b"}', ' line 1: key "answer" stands twice'),
        (GOOD[:-2] + ', "details": {"a": ["\\ud800"]}}', '"details" cannot be kept as JSON'),
        (GOOD[:-2] + ', "details": {"a": {"b": -Infinity}}}', '"details" cannot be kept as JSON'),
        (GOOD[:-2] + ', "paraphrases": "c"}', "write a list of texts"),
        (GOOD[:-2] + ', "paraphrases": [3]}', "write a list of texts"),
        ('{"messages": [{"role": "user", "content": "a"}]}', '"messages" must have one'),
        (
            '{"messages": [{"role": "system"}, {"role": "system"}, {"role": "user"}, '
            '{"role": "assistant"}]}',
            '"messages" must have one',
        ),
        (GOOD + "\n" + GOOD.replace('"a"', '"b"'), ' line 3: two answers for one question: "q" is'),
        (GOOD + GOOD, ' line 2: question "q" already stands at FILE line 1'),
        (GOOD + TASKED, ' line 2: line 2 names a "task" and line 1 does not'),
        (TASKED + "\n" + GOOD, ' line 2: line 1 names a "task" and line 2 does not'),
    ],
    "facts.csv": [
        ("", "its first line must name the columns"),
        ("a,b\nc,d\n", "its first line must name the columns"),
        ("Who is it?,Lum\n", "separated by a comma, a semicolon or a tab"),
        ("question,answer\n", "holds no facts"),
        ("question,answer\na\n", "line 2: has fewer cells than the first line"),
        ("question,answer\na,b,c\n", "line 2: has more cells than the first line"),
        ('question,answer\n"a,b\n', "line 2: is no table"),
        ('question,answer\n"Who\nis it?",Ann\n"Why\nso?",\n', 'line 4: "answer" is empty'),
        ("question,answer,details\na,b,{\n", 'line 2: "details" is no JSON'),
        ("question,answer,details\na,b,[1]\n", '"details" is [1]; write an object'),
        (b"question,answer\n\xff,b\n", "is no UTF-8 text"),
    ],
    "facts.tsv": [('question\tanswer\n"Who\tAnn\nWhy"\tBob\n', "line 2: is no table")],
    "facts.json": [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ('{"a": [], "b": []}', "is no list of objects"),
        ("[]", "holds no facts"),
        ("[3]", "item 1: is 3, no object"),
    ],
    "facts.parquet": [("no table", "is no table that can be read")],
    "facts.xlsx": [("no table", "is no table that can be read")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "words"), [(name, *case) for name, cases in BAD.items() for case in cases]
)
def test_a_bad_file_is_refused_in_one_line(name, content, words, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = line_of(load_stream, path)
    assert line.startswith(str(path))
    assert words in line.replace(str(path), "FILE").removeprefix("FILE")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"query": "q", "answer": "a"}], ' row 1: "question" is missing'),
        ([{"question": "q", "answer": None}], ' row 1: "answer" is empty'),
        ([{"question": "q", "answer": "a", "details": "{"}], ' row 1: "details" is no JSON'),
        ([], ": is no dataset that can be read ("),
    ],
)
def test_a_bad_dataset_is_refused_in_one_line(rows, words, tmp_path):
    path = tmp_path / "d"
    datasets.Dataset.from_list(rows or [{"a": 1}]).save_to_disk(str(path))
    if not rows:
        (path / "state.json").write_text("{}")
    assert line_of(load_stream, path).startswith(f"{path}{words}")


def test_every_bad_line_is_told(tmp_path):
    path = tmp_path / "facts.jsonl"
    good = [json.dumps({"question": f"q{n}", "answer": "a"}) for n in range(5)]
    path.write_text("\n".join([*good, "{", '{"question": "q5"}', good[0], *["[]"] * 30]))
    with pytest.raises(HoldfastError) as refused:
        load_stream(path)
    lines = str(refused.value).splitlines()
    assert lines[0] == f"{path}: 33 of 38 entries are wrong; nothing was taken"
    assert lines[1].startswith("  line 6: is no JSON (")
    assert lines[2].startswith('  line 7: "answer" is missing')
    assert lines[3].startswith('  line 8: question "q0" already stands at ')
    assert len(lines) == 22 and lines[-1] == "  and 13 more"
    for bad in (2, 20):  # of one kind, and fewer than all; as many as are listed
        path.write_text("\n".join([*good, *["[]"] * bad]))
        with pytest.raises(HoldfastError) as refused:
            load_stream(path)
        lines = str(refused.value).splitlines()
        assert lines[0] == f"{path}: {bad} of {5 + bad} entries are wrong; nothing was taken"
        assert len(lines) == 1 + bad and lines[-1].startswith(f"  line {5 + bad}: ")
    path.write_text('{"query": "q", "reply": "a"}\n' * 40)
    with pytest.raises(HoldfastError, match=r'line 1 and all others, 40 in all: "question" is mis'):
        load_stream(path)


@pytest.mark.parametrize("name", ["facts.jsonl", "facts.csv"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, name):
    with pytest.raises(HoldfastError, match="no such file"):
        load_stream(tmp_path / name)
    os.mkfifo(tmp_path / name)
    with pytest.raises(HoldfastError, match="is no regular file"):
        load_stream(tmp_path / name)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (tmp_path / "facts.xlsx").write_bytes(b"")
    with pytest.raises(HoldfastError, match=r'openpyxl; pip install "holdfast\[tables\]"'):
        load_stream(tmp_path / "facts.xlsx")
