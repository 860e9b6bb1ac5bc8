"""Facts as people keep them: tables, other keys, data frames; every bad line is told."""

from __future__ import annotations

import json
import logging

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream, Task, load_stream
from holdfast.streams.tables import TABLES, write_table

RYE = Item("What is sown?", "rye")


def items(stream):
    return [item for task in stream.tasks for item in task.items]


def texts(without="|"):
    letters = st.characters(codec="utf-8", exclude_categories=("C",), exclude_characters=without)
    return st.text(letters, min_size=1, max_size=12).map(str.strip).filter(
        lambda text: text and text.count("{") == text.count("}") == 0
    )  # fmt: skip


details = st.dictionaries(
    st.sampled_from(["topic", "level", "who"]),
    st.one_of(texts(), st.integers(-9, 9), st.booleans(), st.lists(texts(), max_size=2)),
)


@st.composite
def streams(draw):
    made = draw(
        st.lists(
            st.builds(
                Item, texts(), texts(), st.lists(texts(), max_size=2).map(tuple),
                st.none() | texts(), details,
            ),
            min_size=1, max_size=5, unique_by=lambda item: "".join(item.question.split()).lower(),
        )
    )  # fmt: skip
    tasks = [Task(f"t{n}", (item,)) for n, item in enumerate(made)]
    return Stream(tuple(tasks), "facts")


@pytest.mark.parametrize("suffix", TABLES)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(stream=streams())
def test_a_table_reads_back_equal(suffix, tmp_path, stream):
    path = tmp_path / f"facts{suffix}"
    write_table(stream, path)
    read = load_stream(path)
    assert read.tasks == stream.tasks
    assert [item.details for item in items(read)] == [item.details for item in items(stream)]
    assert [item.id for item in items(read)] == [item.id for item in items(stream)]


def test_an_alias_with_a_bar_goes_into_no_cell(tmp_path):
    stream = Stream((Task("1", (Item("q", "a", ("b|c",)),)),), "facts")
    with pytest.raises(HoldfastError, match=r'alias "b\|c" holds a vertical bar'):
        write_table(stream, tmp_path / "facts.csv")
    write_table(stream, tmp_path / "facts.json")
    assert load_stream(tmp_path / "facts.json").tasks == stream.tasks


@pytest.mark.parametrize(
    "record",
    [
        {"question": "What is sown?", "answer": "rye"},
        {"prompt": "What is sown?", "completion": "rye"},
        {"instruction": "What is sown?", "output": "rye"},
        {"input": "What is sown?", "output": "rye"},
        {"messages": [{"role": "user", "content": "What is sown?"},
                      {"role": "assistant", "content": "rye"}]},
    ],
)  # fmt: skip
def test_questions_and_answers_under_other_keys(record, tmp_path):
    path = tmp_path / "facts.jsonl"
    path.write_text(json.dumps({**record, "level": 3}))
    (found,) = items(load_stream(path))
    assert found.details == {"level": 3}
    assert (found.question, found.answer) == (RYE.question, RYE.answer)


def test_a_system_message_is_a_detail(tmp_path):
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Who?"},
            {"role": "assistant", "content": "Ann"}]  # fmt: skip
    (found,) = items(load_stream([{"messages": chat}]))
    assert (found.question, found.answer, found.details) == ("Who?", "Ann", {"system": "Be short."})


def test_columns_by_name(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text("Frage;Antwort;question\nWas?;Roggen;7\n")
    (found,) = items(load_stream(path, question_column="Frage", answer_column="Antwort"))
    assert (found.question, found.answer, found.details) == ("Was?", "Roggen", {"question": "7"})
    with pytest.raises(HoldfastError, match='has no "Fragen"; it has Frage, Antwort, question'):
        load_stream(path, question_column="Fragen", answer_column="Antwort")


def test_further_columns_are_details_and_misspelled_ones_are_told(tmp_path, caplog):
    path = tmp_path / "facts.csv"
    path.write_text("question,answer,topic,alias\nWho?,Ann,people,Anna\nWhy?,Rain,,\n")
    with caplog.at_level(logging.WARNING):
        found = items(load_stream(path))
    assert [item.details for item in found] == [{"topic": "people", "alias": "Anna"}, {}]
    assert [record.getMessage() for record in caplog.records] == [
        f'{path}: "alias" is kept as a detail; if you meant "aliases", rename it'
    ]


def test_paraphrases_are_kept_for_who_learns_them(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text("question,answer,paraphrases\nWho?,Ann,Which person? | Who is it?\n")
    (found,) = items(load_stream(path))
    assert found.details == {"paraphrases": ["Which person?", "Who is it?"]}


def test_numbers_of_a_spreadsheet_are_texts(tmp_path):
    frame = pd.DataFrame(
        {"question": ["When?", "How many?"], "answer": [1879, 40], "level": [1.0, None],
         "seen": [pd.Timestamp("2026-01-02"), pd.NaT]}
    )  # fmt: skip
    for name in ("facts.xlsx", "facts.parquet"):
        path = tmp_path / name
        frame.to_excel(path, index=False) if name.endswith("x") else frame.to_parquet(path)
        found = items(load_stream(path))
        assert [item.answer for item in found] == ["1879", "40"]
        assert found[1].details == {}
    found = items(load_stream(frame))
    assert [item.answer for item in found] == ["1879", "40"]
    assert found[0].details == {"level": 1, "seen": "2026-01-02T00:00:00"}


def test_facts_of_python():
    assert items(load_stream([("What is sown?", "rye")])) == [RYE]
    assert items(load_stream({"question": q, "answer": "a"} for q in "xy"))[1].question == "y"
    frame = pd.DataFrame({"q": ["What is sown?"], "a": ["rye"], "task": [3]})
    (task,) = load_stream(frame, question_column="q", answer_column="a").tasks
    assert (task.name, task.items) == ("3", (RYE,))
    assert len(load_stream([(q, "a") for q in "uvwxy"], items_per_task=2).tasks) == 3
    with pytest.raises(HoldfastError, match="facts: holds no facts"):
        load_stream([])
    for one in ({"question": "What is sown?", "answer": "rye"}, {"What is sown?": "rye"}, {}):
        with pytest.raises(HoldfastError, match=r"one mapping, with .*; give a DataFrame, or a li"):
            load_stream(one)
    for one in (3, None):
        with pytest.raises(HoldfastError, match=f"^{one} holds no facts; give a DataFrame, or"):
            load_stream(one)


def test_a_stream_as_a_frame_comes_back():
    whole = Item("Who?", "Ann", ("Anna",), "7", {"topic": "people", "seen": [1, 2]})
    stream = Stream((Task("a", (whole, RYE)), Task("b", (Item("Why?", "Rain"),))), "facts")
    frame = stream.to_frame()
    assert list(frame["task"]) == ["a", "a", "b"]
    assert load_stream(frame) == stream
    plain = Stream((Task("1", (RYE,)),), "facts").to_frame()
    assert plain.to_dict("list") == {
        "task": ["1"], "question": ["What is sown?"], "answer": ["rye"]
    }  # fmt: skip


BAD = {
    "facts.csv": [
        ("", "its first line must name the columns"),
        ("a,b\nc,d\n", "its first line must name the columns"),
        ("question,answer\n", "holds no facts"),
        ("question,answer\na\n", "line 2: has fewer cells than the first line"),
        ("question,answer\na,b,c\n", "line 2: has more cells than the first line"),
        ('question,answer\n"a,b\n', "is no table"),
        ("question,answer,answer\na,b,c\n", 'has two columns "answer"; keep one'),
        ("question,answer,details\na,b,{\n", 'line 2: "details" is no JSON'),
        ("question,answer,details\na,b,[1]\n", '"details" is [1]; write an object'),
        ("question,answer\n,b\n", 'line 2: "question" is empty'),
        ("question,answer\na,{\n", "unbalanced braces"),
        (b"question,answer\n\xff,b\n", "is no UTF-8 text"),
    ],
    "facts.json": [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("3", "is no list of objects"),
        ('{"a": [], "b": []}', "is no list of objects"),
        ("[]", "holds no facts"),
        ("[3]", "item 1: is 3, no object"),
        ('[{"question": "a"}]', '"answer" is missing; every item needs a question and an answer'),
        ('[{"question": 3, "answer": "b"}]', '"question" is 3, which is no text'),
        ('[{"messages": "hello"}]', '"messages" must have one of the role user'),
        ('[{"messages": [{"role": "user", "content": "a"}]}]', '"messages" must have one'),
        ('[{"messages": [{"role": "user", "content": 3}, {"role": "assistant", "content": "b"}]}]',
         '"question" is 3, which is no text'),
        ('[{"question": "a", "answer": "b", "paraphrases": "c"}]', 'write a list of texts'),
        ('[{"question": "a", "answer": "b", "paraphrases": [3]}]', 'write a list of texts'),
        ("[" * 100_000, "is no JSON"),
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
    with pytest.raises(HoldfastError) as refused:
        load_stream(path)
    assert words in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


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


def test_one_reason_for_all_is_told_once(tmp_path):
    path = tmp_path / "facts.jsonl"
    path.write_text('{"query": "q", "reply": "a"}\n' * 40)
    with pytest.raises(HoldfastError) as refused:
        load_stream(path)
    assert str(refused.value) == (
        f'{path} line 1 and all others, 40 in all: "question" is missing; every item needs a '
        "question and an answer, this has query, reply"
    )


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (tmp_path / "facts.xlsx").write_bytes(b"")
    with pytest.raises(HoldfastError, match=r'openpyxl; pip install "holdfast\[tables\]"'):
        load_stream(tmp_path / "facts.xlsx")
