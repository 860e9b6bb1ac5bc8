"""Streams as saved Hugging Face datasets."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream, Task, load_stream, read_dataset, write_dataset

STREAM = Stream(
    (
        Task("monday", (Item("q1", "a1", ("b", "c"), "x", {"topic": "é", "n": [1, None]}),)),
        Task("tuesday", (Item("q2", "a2"), Item("q3", "a3"))),
    ),
    "made up",
)


def save(rows: list[dict[str, object]], path: Path) -> Path:
    datasets.Dataset.from_list(rows).save_to_disk(str(path))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(HoldfastError) as caught:
        read_dataset(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), "DIR")


def test_a_stream_comes_back_equal(tmp_path: Path) -> None:
    write_dataset(STREAM, tmp_path / "d")
    assert load_stream(tmp_path / "d").tasks == STREAM.tasks
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
    columns = datasets.load_from_disk(str(tmp_path / "d")).column_names
    assert columns == ["question", "answer", "aliases", "task", "id", "details"]


def test_any_dataset_with_the_two_columns_is_a_stream(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}", "answer": "a", "score": i} for i in range(5)]
    stream = load_stream(save(rows, tmp_path / "d"), items_per_task=2)
    assert [len(task.items) for task in stream.tasks] == [2, 2, 1]


def test_of_several_splits_train_is_read(tmp_path: Path) -> None:
    def made(question: str) -> object:
        return datasets.Dataset.from_list([{"question": question, "answer": "a"}])

    both = datasets.DatasetDict({"test": made("no"), "train": made("yes")})
    both.save_to_disk(str(tmp_path / "d"))
    assert read_dataset(tmp_path / "d").tasks[0].items[0].question == "yes"
    other = datasets.DatasetDict({"test": made("no"), "dev": made("neither")})
    other.save_to_disk(str(tmp_path / "e"))
    assert refusal(tmp_path / "e") == (
        "DIR: has the splits test, dev and no train; give the one that you mean"
    )


def test_a_loaded_dataset_is_a_stream_as_a_saved_one_is(tmp_path: Path) -> None:
    stream = Stream(
        (
            Task("1", (Item("Who?", "Ann", ("Anna",), "7", {"topic": "people"}),)),
            Task("2", (Item("Why?", "Rain"),)),
        ),
        "facts",
    )
    write_dataset(stream, tmp_path / "facts")
    table = datasets.load_from_disk(str(tmp_path / "facts"))
    other = datasets.Dataset.from_list([{"question": "no", "answer": "a"}])
    for given in (
        table,
        table.to_iterable_dataset(),
        datasets.DatasetDict({"test": other, "train": table}),
        datasets.DatasetDict({"validation": table}),
    ):
        assert load_stream(given) == stream
    with pytest.raises(HoldfastError, match="dataset: has the splits test, dev and no train; give"):
        load_stream(datasets.DatasetDict({"test": table, "dev": table}))
    with pytest.raises(HoldfastError, match='dataset row 2: "answer" is missing'):
        load_stream(datasets.Dataset.from_dict({"question": ["a", "b"], "answer": ["c", None]}))


ROW = {"question": "q", "answer": "a"}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"query": "q", "answer": "a"}], 'row 1: "question" is missing'),
        ([ROW, {"question": "r", "answer": " "}], 'row 2: "answer" is empty'),
        ([{"question": "q", "answer": 3}], 'row 1: "answer" is 3, which is no text'),
        ([{**ROW, "details": "{"}], 'row 1: "details" is no JSON'),
        ([ROW, ROW], 'row 2: question "q" already stands at DIR row 1'),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, rows: list[dict[str, object]], words: str
) -> None:
    said = refusal(save(rows, tmp_path / "d"))
    assert said.startswith("DIR ") and words in said


def test_a_dataset_without_rows_is_refused(tmp_path: Path) -> None:
    empty = datasets.Dataset.from_dict({"question": [], "answer": []})
    empty.save_to_disk(str(tmp_path / "d"))
    assert refusal(tmp_path / "d") == "DIR: has no rows; a stream needs at least one"


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ('{"a": ' + "[" * 100_000, '"details" is no JSON; write an object as text'),
        ('{"a": "\\ud800"}', '"details" holds a text that is no valid Unicode'),
        ('{"a": NaN}', '"details" cannot be kept as JSON'),
    ],
)
def test_details_that_no_file_can_hold(tmp_path: Path, details: str, message: str) -> None:
    rows: list[dict[str, object]] = [{"question": "q", "answer": "a", "details": details}]
    assert refusal(save(rows, tmp_path / "d")).startswith(f"DIR row 1: {message}")


def test_a_damaged_dataset_is_refused(tmp_path: Path) -> None:
    path = save([{"question": "q", "answer": "a"}], tmp_path / "d")
    (path / "state.json").write_text("{}")
    assert refusal(path).startswith("DIR: is no dataset that can be read (")


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    write_dataset(STREAM, tmp_path / "d")
    with pytest.raises(HoldfastError, match="is there already"):
        write_dataset(STREAM, tmp_path / "d")
