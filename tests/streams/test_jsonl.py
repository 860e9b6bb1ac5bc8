"""A user's own file: an exact round trip, and one clear line for everything wrong in it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream, Task, braces_balance, read_jsonl, write_jsonl
from holdfast.streams.item import is_visible

# Every line separator that some reader would split on, and braces, are in reach.
READABLE = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
SYMBOLS = READABLE | st.sampled_from('\u2028\x85\x0b\r\n{}"\\ é')
TEXTS = st.text(SYMBOLS, min_size=1, max_size=12).filter(is_visible)
ANSWERS = TEXTS.filter(braces_balance)


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    names = draw(st.lists(TEXTS.map(str.strip), min_size=1, max_size=4, unique=True))
    tasks = []
    for index, name in enumerate(names):
        count = draw(st.integers(1, 3))
        items = [
            Item(
                f"{index}.{number} {draw(TEXTS)}",
                draw(ANSWERS),
                tuple(draw(st.lists(ANSWERS, max_size=2))),
                draw(st.none() | TEXTS),
            )
            for number in range(count)
        ]
        tasks.append(Task(name, tuple(items)))
    return Stream(tuple(tasks), "written")


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "facts.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path, items_per_task: int | None = None) -> str:
    with pytest.raises(HoldfastError) as raised:
        read_jsonl(path, items_per_task)
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    return message.replace(str(path), "facts.jsonl")


@given(streams())
def test_the_round_trip_is_exact(stream: Stream) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "written.jsonl"
        write_jsonl(stream, path)
        assert read_jsonl(path) == stream
        assert [entry.name for entry in Path(folder).iterdir()] == ["written.jsonl"]


def test_tasks_come_in_order_of_first_appearance(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"question": "1", "answer": "a", "task": 10}\n'
        '{"question": "2", "answer": "b", "task": "early"}\n'
        '{"question": "3", "answer": "c", "task": 2}\n'
        '{"question": "4", "answer": "d", "task": "10"}\n',
    )
    stream = read_jsonl(path)
    assert [task.name for task in stream.tasks] == ["10", "early", "2"]
    assert [item.question for item in stream.tasks[0].items] == ["1", "4"]
    assert stream.name == "facts"


@pytest.mark.parametrize(
    ("items_per_task", "sizes"), [(2, [2, 2, 1]), (5, [5]), (9, [5]), (1, [1] * 5), (None, [5])]
)
def test_lines_without_a_task_are_cut(
    tmp_path: Path, items_per_task: int | None, sizes: list[int]
) -> None:
    lines = [f'{{"question": "q{number}", "answer": "a"}}\n' for number in range(5)]
    stream = read_jsonl(written(tmp_path, "".join(lines)), items_per_task)
    assert [len(task.items) for task in stream.tasks] == sizes
    assert [task.name for task in stream.tasks] == [str(n + 1) for n in range(len(sizes))]
    questions = [item.question for task in stream.tasks for item in task.items]
    assert questions == [f"q{number}" for number in range(5)]


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_read(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf{"question": "q", "answer": "a", "aliases": ["b"], "id": 7}\r\n\r\n'
    (task,) = read_jsonl(written(tmp_path, content)).tasks
    assert task.items == (Item("q", "a", ("b",), "7"),)


@pytest.mark.parametrize(
    ("aliases", "known"), [("", ()), (', "aliases": ["a fortnight"]', ("a fortnight",))]
)
def test_of_several_answers_the_first_is_taught(tmp_path: Path, aliases: str, known: tuple) -> None:
    line = f'{{"question": "How long?", "answer": ["14 days", "two weeks"]{aliases}}}\n'
    (task,) = read_jsonl(written(tmp_path, line)).tasks
    assert task.items == (Item("How long?", "14 days", (*known, "two weeks")),)


GOOD = '{"question": "q", "answer": "a"}\n'
TASKED = '{"question": "r", "answer": "a", "task": 1}'


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (" \n\n", "", "is empty"),
        (GOOD + "what?\n", " line 2", "is no JSON (Expecting value: line 1 column 1"),
        (GOOD + "\n[1]\n", " line 3", "is no JSON object"),
        (GOOD.strip().encode("utf-16"), " line 1", "is no UTF-8 text; save the file as UTF-8"),
        ('{"question": "q"}', " line 1", '"answer" is missing'),
        ('{"answer": "q"}', " line 1", '"question" is missing'),
        ('{"question": "q", "answer": " "}', " line 1", '"answer" is empty'),
        ('{"question": "q", "answer": 4}', " line 1", '"answer" is 4, which is no text'),
        (GOOD[:-2] + ', "aliases": null}', " line 1", '"aliases" is None; write a list'),
        (GOOD[:-2] + ', "task": true}', " line 1", '"task" is True; give a text or a whole number'),
        (GOOD[:-2] + ', "task": " "}', " line 1", '"task" is empty'),
        ('{"question": "q", "answer": "a}b"}', " line 1", "has unbalanced braces"),
        (GOOD[:-2] + ', "answer": "b"}', " line 1", 'key "answer" stands twice'),
        (GOOD + "\n" + GOOD.replace('"a"', '"b"'), " line 3", '"a" at facts.jsonl line 1'),
        (GOOD + GOOD, " line 2", "already stands at facts.jsonl line 1"),
        (GOOD + TASKED, " line 2", 'line 2 names a "task" and line 1 does not'),
        (TASKED + "\n" + GOOD, " line 2", 'line 1 names a "task" and line 2 does not'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, text: str | bytes, place: str, words: str
) -> None:
    said = refusal(written(tmp_path, text))
    assert said.startswith(f"facts.jsonl{place}: ") and words in said


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000, '{"question": "\ud83d'])
def test_hostile_lines_are_refused_in_one_line_too(tmp_path: Path, text: str) -> None:
    message = refusal(written(tmp_path, text.encode("utf-8", "surrogatepass")))
    assert message.startswith("facts.jsonl line 1: is no ")


def test_cutting_a_file_that_names_its_tasks_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, '{"question": "q", "answer": "a", "task": 1}')
    assert refusal(path, 20) == (
        'facts.jsonl: its items name their "task", so items_per_task = 20 has no meaning; '
        "leave it out"
    )
    assert refusal(written(tmp_path, GOOD), 0) == "facts.jsonl: items_per_task = 0; use 1 or more"


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    assert refusal(path) == "facts.jsonl: no such file; give the path of a .jsonl file"
    path.mkdir()
    assert refusal(path) == "facts.jsonl: is no regular file; give the path of a .jsonl file"


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ('{"topic": "\\ud800"}', "holds a text that is no valid Unicode"),
        ('{"a": [{"\\udfff": 1}]}', "holds a text that is no valid Unicode"),
        ('{"a": [NaN]}', "cannot be kept as JSON"),
        ('{"a": {"b": -Infinity}}', "cannot be kept as JSON"),
    ],
)
def test_details_that_no_file_can_hold_are_refused(
    tmp_path: Path, details: str, message: str
) -> None:
    good = '{"question": "p", "answer": "a", "details": {"topic": "\\ud83d\\ude00", "n": 1.5}}'
    path = written(tmp_path, f'{good}\n{{"question": "q", "answer": "a", "details": {details}}}\n')
    assert refusal(path).startswith(f'facts.jsonl line 2: "details" {message}')


def test_a_named_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "facts.jsonl")
    with pytest.raises(HoldfastError, match="is no regular file"):
        read_jsonl(tmp_path / "facts.jsonl")
