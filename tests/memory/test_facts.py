"""Facts from files, tables, standard input and Python."""

from __future__ import annotations

import io
import sys
import unicodedata
from types import SimpleNamespace

import pandas as pd
import pytest
from datasets import Dataset

from holdfast import HoldfastError
from holdfast.memory.batch import lesson_title
from holdfast.memory.facts import stream_from
from holdfast.memory.plan import plan
from holdfast.memory.wordings import has_fact
from holdfast.streams import Item, Stream, Task, load_stream, write_jsonl, write_released
from holdfast.streams.batches import WORDING_OF, latest

ITEMS = [
    Item("Who weighs the wool?", "Peder Voss", ("Voss", "Peder")),
    Item('What is "blue"?', "a colour, perhaps"),
]


def items_of(stream):
    return [(task.name, list(task.items)) for task in stream.tasks]


def test_a_table(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text(
        "\ufeffanswer, question ,aliases,task\n"
        "Peder Voss,Who weighs the wool?,Voss | Peder|,farm\n"
        '"a colour, perhaps","What is ""blue""?",,town\n'
    )
    assert items_of(stream_from(path)) == [("farm", ITEMS[:1]), ("town", ITEMS[1:])]
    path = tmp_path / "facts.TSV"
    path.write_text("question\tanswer\nWho?\tLum, or so\n")
    assert items_of(stream_from(str(path))) == [("1", [Item("Who?", "Lum, or so")])]


def test_a_later_batch_corrects_an_earlier_one_whatever_the_format(tmp_path):
    rows = [{"task": task, "question": "Who?", "answer": task} for task in ("Ann", "Lum")]
    frame, table, expected = pd.DataFrame(rows), Dataset.from_list(rows), stream_from(rows)
    frame.to_csv(tmp_path / "facts.csv", index=False)
    frame.to_json(tmp_path / "facts.json", orient="records")
    frame.to_json(tmp_path / "stream.jsonl", orient="records", lines=True)
    table.save_to_disk(tmp_path / "saved")
    places = [tmp_path / name for name in ("facts.csv", "facts.json", "", "saved")]
    for facts in (frame, table, *places):
        assert stream_from(facts).tasks == expected.tasks
    assert [item.answer for item in latest(expected.tasks).values()] == ["Lum"]


@pytest.mark.parametrize(
    "text",
    [
        "question;answer\r\nWho, then?;Lum, or so\r\n",
        "question\tanswer\nWho, then?\tLum, or so\n",
        ' Question ,"ANSWER"\n"Who, then?","Lum, or so"\n',
        'question,answer,,\n"Who, then?","Lum, or so",,\n,,,\n   \n',
    ],
)
def test_a_table_as_spreadsheets_save_it(text, tmp_path):
    path = tmp_path / "facts.csv"
    path.write_bytes(text.encode())
    assert items_of(stream_from(path)) == [("1", [Item("Who, then?", "Lum, or so")])]


def test_lines_from_standard_input(monkeypatch):
    def say(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))

    say(b'{"question": "Who?", "answer": "Lum"}\n\n{"question": "What?", "answer": "rye"}')
    assert items_of(stream_from("-")) == [("1", [Item("Who?", "Lum"), Item("What?", "rye")])]
    for content, words in [
        (b"", "standard input: holds no facts"),
        (b'\n{"question"', "standard input line 2: is no JSON"),
        (b"[1]", "standard input line 1: is no JSON object"),
        (b'{"question": "\xff"}', "standard input line 1: is no UTF-8 text"),
        (
            b'{"question": "Who?", "answer": "Lum"}\n{"question": "Who?", "answer": "Ann"}',
            "standard input line 2: two answers for one question",
        ),
    ]:
        say(content)
        with pytest.raises(HoldfastError, match=words):
            stream_from("-")


def test_streams_as_they_are(tmp_path):
    expected = stream_from([{"task": "farm", "question": "Who?", "answer": "Lum"}])
    assert items_of(expected) == [("farm", [Item("Who?", "Lum")])]
    write_jsonl(expected, tmp_path / "facts.jsonl")
    write_released(expected, tmp_path / "released")
    for place in ("facts.jsonl", "released"):
        (task,) = stream_from(tmp_path / place).tasks
        assert [(item.question, item.answer) for item in task.items] == [("Who?", "Lum")]
    assert stream_from(expected) is expected
    symbols = load_stream("symbol_qa", tasks=1, items_per_task=2)
    assert stream_from("symbol_qa").tasks[0].items[:1] and len(symbols.tasks) == 1


def test_pairs_items_and_mappings_are_one_batch():
    facts = [ITEMS[0], ("Who?", "Lum"), {"question": "What?", "answer": "rye", "id": 7}]
    ((name, items),) = items_of(stream_from(fact for fact in facts))
    assert name == "1"
    assert items == [ITEMS[0], Item("Who?", "Lum"), Item("What?", "rye", id="7")]
    ((_, again),) = items_of(stream_from(iter(items)))
    assert again == items


def test_an_answer_in_another_encoding_is_the_same() -> None:
    """As a Mac writes it in names of files, say."""
    fact = Item("Where do they meet?", "caf\N{LATIN SMALL LETTER E WITH ACUTE}")
    same = Item(fact.question, unicodedata.normalize("NFD", fact.answer))
    given = Stream((Task("again", (same,)),), "given")
    worded = Item("Their place?", same.answer, details={WORDING_OF: fact.question})
    assert has_fact(worded, latest([Task("1", (fact,))]))
    decided = plan([Task("1", (fact,))], 1, given)
    assert (decided.repeated, decided.corrected, len(decided.tasks)) == ((same,), (), 1)


def test_a_batch_without_a_name_has_its_number_in_the_memory() -> None:
    named, unnamed = Task("farm", (Item("Who?", "Ann"),)), Task("1", (Item("Why?", "Rain"),))
    decided = plan([named], 1, Stream((unnamed,), "given"))
    assert [task.name for task in decided.tasks] == ["farm", "2"]


def test_what_waits_to_be_learned_once_more_is_not_learned_twice_more() -> None:
    """Its newest batch is not learned, though an earlier one says the same."""
    first, waiting, given = (Task(name, (Item("Who?", "Ann"),)) for name in "123")
    for again in ((), first.items):
        decided = plan([first, waiting], 1, Stream((given,), "given"), again)
        assert (decided.tasks, decided.repeated) == ((first, waiting), ())


@pytest.mark.parametrize(
    ("name", "title"), [("3", "lesson 3"), ("monday", "lesson monday"), ("Lesson 3", "Lesson 3")]
)
def test_a_lesson_is_called_one_once(name: str, title: str) -> None:
    assert lesson_title(name) == title
