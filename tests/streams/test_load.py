"""Streams by name or path, and the order of their tasks."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.config import build
from holdfast.core.errors import HoldfastError
from holdfast.streams import (
    Item,
    Stream,
    StreamConfig,
    Task,
    load_stream,
    reorder,
    symbol_qa,
    task_order,
    write_jsonl,
    write_released,
)
from tests.refused import line_of

refusal = partial(line_of, load_stream)


def test_keywords_replace_what_a_configuration_says() -> None:
    assert load_stream(tasks=1) == symbol_qa(1)
    config = StreamConfig(tasks=4, items_per_task=3, seed=7)
    assert load_stream(config) == symbol_qa(4, 3, 7)
    assert load_stream(config, tasks=2, seed=8) == symbol_qa(2, 3, 8)


@given(count=st.integers(1, 150), seed=st.integers(0, 2**40))
def test_an_order_is_the_published_permutation(count: int, seed: int) -> None:
    order = task_order(count, seed)
    assert order == Random(seed).sample(range(count), count)
    assert sorted(order) == list(range(count))
    assert task_order(100, 42)[:5] == [81, 14, 3, 94, 35]


@settings(max_examples=20)
@given(tasks=st.integers(1, 100), order_seed=st.integers(0, 1000))
def test_a_permuted_stream_is_prefix_stable(tasks: int, order_seed: int) -> None:
    whole = load_stream(items_per_task=1, order_seed=order_seed)
    short = load_stream(items_per_task=1, order_seed=order_seed, tasks=tasks)
    assert short.tasks == whole.tasks[:tasks]
    stored = symbol_qa(100, 1).tasks
    assert list(whole.tasks) == [stored[index] for index in task_order(100, order_seed)]


def test_an_order_moves_tasks_whole_and_keeps_their_names() -> None:
    stored = symbol_qa(5, 3)
    permuted = reorder(stored, 1)
    assert permuted.fingerprint != stored.fingerprint
    assert {task.name: task.items for task in permuted.tasks} == {
        task.name: task.items for task in stored.tasks
    }
    assert permuted.exact_case
    assert reorder(stored, None) is stored


def test_a_file_is_ordered_and_cut_like_a_generated_stream(tmp_path: Path) -> None:
    stored = symbol_qa(6, 2)
    path = tmp_path / "symbols.jsonl"
    write_jsonl(stored, path)
    assert load_stream(path).tasks == stored.tasks
    assert load_stream(str(path), order_seed=3, tasks=2).tasks == reorder(stored, 3).tasks[:2]
    assert refusal(path, tasks=7) == (
        'stream "symbols" has no first 7 tasks, as it holds 6; set tasks to a number from 1 to 6'
    )


def test_a_home_directory_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_jsonl(symbol_qa(1, 2), tmp_path / "facts.jsonl")
    assert load_stream("~/facts.jsonl").tasks == symbol_qa(1, 2).tasks


def test_an_unknown_name_lists_what_exists() -> None:
    rest = "and no file or directory"
    assert refusal("symbol-qa") == f'unknown stream "symbol-qa", {rest}; did you mean symbol_qa?'
    assert refusal("zzz") == f'unknown stream "zzz", {rest}; known: symbol_qa'


def test_another_format_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "facts.txt"
    other.write_text("q,a\n")
    assert refusal(other).startswith(f"{other}: is no stream; a stream is a .jsonl file or a table")


def test_a_name_that_yaml_reads_as_a_number_is_a_name(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "2024").mkdir()
    write_jsonl(symbol_qa(1, 2), tmp_path / "2024" / "stream.jsonl")
    config = build(StreamConfig, {"name": 2024}, source="stream")
    assert (config.name, load_stream(config).name) == ("2024", "2024")
    with pytest.raises(HoldfastError, match="name = true"):
        build(StreamConfig, {"name": True}, source="stream")


def test_a_place_that_cannot_be_looked_at_is_refused(tmp_path, monkeypatch) -> None:
    assert "File name too long" in refusal("a" * 300)
    assert "File name too long" in refusal("a" * 300 + ".jsonl")

    def closed(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", closed)
    assert refusal(tmp_path / "s").endswith(
        "cannot be read (Permission denied); give the path of a .jsonl file or of a directory that "
        "may be read"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [("tasks", 0), ("items_per_task", -1), ("seed", -1), ("order_seed", -1)],
)
def test_a_value_out_of_range_is_refused(key: str, value: object) -> None:
    message = refusal("symbol_qa", **{key: value})
    assert message.startswith(f"stream: {key} = ")


def test_questions_that_differ_in_case_alone_are_told(tmp_path, caplog) -> None:
    rows = [{"question": question, "answer": "1"} for question in ("Who?", "What?", "who?")]
    path = tmp_path / "facts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    load_stream(path)
    (line,) = caplog.messages
    assert "1 questions differ from another one in case alone, such as" in line
    caplog.clear()
    items = tuple(Item(row["question"], row["answer"]) for row in rows)
    write_released(Stream((Task("1", items),), "exact", exact_case=True), tmp_path / "exact")
    assert load_stream(tmp_path / "exact").exact_case and not caplog.messages  # they are meant
    assert '"Who?" and "who?"' in line
    caplog.clear()
    assert load_stream("symbol_qa", tasks=1).exact_case
    assert not caplog.messages
