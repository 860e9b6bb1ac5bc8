"""The published layout: read as it is, written so that it reads back, refused in one line."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream, Task, load_stream, read_released, symbol_qa
from holdfast.streams import write_released as write
from tests.refused import line_of

# Two tasks as the paper's directories hold them: what is asked in one of the item files only, the
# training order in the texts.
FIRST = [
    {
        "id": f"task_0_item_{number}",
        "task_id": 0,
        "topic": "humming stones",
        "query": question,
        "answer": answer,
        "train_text": f"Question: {question}\nAnswer: {answer}",
        "entity": "Orl",
    }
    for number, (question, answer) in enumerate(
        [("Who found Orl?", "Ida Venn"), ("What is Orl made of?", "blue slate")]
    )
]
SECOND = [
    {
        "id": "squad::train::0",
        "query": "Which river is widest?",
        "answer": "the Amber",
        "answer_aliases": ["Amber", "River Amber"],
        "dataset": "squad",
    },
    {"id": "x", "query": "How deep is it?", "answer": "9 m", "answer_aliases": [], "dataset": "y"},
]


def text(item: dict[str, Any]) -> str:
    return f"Question: {item['query']}\nAnswer: {item['answer']}"


def publish(root: Path, *tasks: tuple[str, list[dict[str, Any]]], **manifest: Any) -> Path:
    """tasks: the name of the items file and the items; their texts stand the other way round."""
    for index, (name, items) in enumerate(tasks):
        folder = root / f"task_{index}"
        folder.mkdir(parents=True)
        (folder / name).write_text(json.dumps(items))
        texts = [text(item) for item in reversed(items)]
        (folder / "train_texts.json").write_text(json.dumps(texts))
    (root / "manifest.json").write_text(json.dumps({"n_tasks": len(tasks)} | manifest))
    return root


@pytest.fixture
def published(tmp_path: Path) -> Path:
    return publish(
        tmp_path / "published",
        ("train_items.json", FIRST),
        ("test_items.json", SECOND),
        dataset_type="made_up",
        seed=7,
        tasks=[{"task_id": 0}, {"task_id": 1}],
    )


def refusal(path: Path) -> str:
    return line_of(read_released, path).replace(f"{path}/", "").replace(str(path), "DIR")


def test_either_items_file_will_do_and_the_texts_give_the_order(published: Path) -> None:
    stream = load_stream(published)
    assert [item.question for item in stream.tasks[0].items] == [
        "What is Orl made of?",
        "Who found Orl?",
    ]
    assert stream.tasks[1].items[1].aliases == ("Amber", "River Amber")
    assert stream.tasks[1].items[1].id == "squad::train::0"
    assert stream.tasks[0].items[0].details == {"topic": "humming stones", "entity": "Orl"}
    assert (stream.name, stream.exact_case, stream.about["seed"]) == ("published", False, 7)
    assert [task.name for task in stream.tasks] == ["1", "2"]


@pytest.mark.parametrize("items", [FIRST, SECOND], ids=["train_text", "answer_aliases"])
def test_what_is_read_and_written_is_the_same_json(tmp_path, items) -> None:
    source = publish(tmp_path / "source", ("train_items.json", items))
    copy = tmp_path / "copy"
    write(read_released(source), copy)
    texts = "task_0/train_texts.json"
    assert (source / texts).read_bytes() == (copy / texts).read_bytes()
    # Ids of the layout's own kind tell the order within the items file; others do not.
    expected = items if items is FIRST else items[::-1]
    for name in ("train_items.json", "test_items.json"):
        written = json.loads((copy / "task_0" / name).read_text())
        assert written == [{"task_id": 0} | item for item in expected]


def test_symbol_qa_is_written_as_it_was_published(tmp_path: Path) -> None:
    write(symbol_qa(2), tmp_path / "s")
    texts = (tmp_path / "s" / "task_0" / "train_texts.json").read_text()
    assert texts.startswith('["Question: gPRqfN\\nAnswer: iIu7", "Question: H4GvjJ\\nAnswer: RSmN"')
    assert texts.endswith('"Question: KD9gF2\\nAnswer: LEmE", "Question: ECqOxS\\nAnswer: F2O3"]')
    first = json.loads((tmp_path / "s" / "task_0" / "train_items.json").read_text())[0]
    assert (first["id"], first["query"], first["answer"]) == ("task_0_item_0", "oHBvRP", "OIvG")
    back = read_released(tmp_path / "s")
    assert back.tasks == symbol_qa(2).tasks
    assert back.exact_case


@pytest.mark.parametrize(
    ("topics", "names"),
    [(["stones", "rivers"], ["stones", "rivers"]), (["stones", "stones"], ["1", "2"])],
)
def test_topics_name_the_tasks(published: Path, topics: list[str], names: list[str]) -> None:
    """If no two have the same."""
    tasks = [{"topic": topic} for topic in topics]
    manifest = {"tasks": tasks, "dataset_type": "symbol_qa_x"}
    (published / "manifest.json").write_text(json.dumps(manifest))
    stream = read_released(published)
    assert [task.name for task in stream.tasks] == names
    assert stream.exact_case  # a published Symbol-QA says no more than its type


def test_ids_that_only_some_items_have_of_the_layout_leave_the_order(tmp_path: Path) -> None:
    items = (Item("q", "a", id="task_0_item_5"), Item("r", "b", id="x"))
    write(Stream((Task("1", items),), "s"), tmp_path / "s")
    assert read_released(tmp_path / "s").tasks[0].items == items


def test_a_question_that_stands_twice_stays_and_is_told(published, caplog) -> None:
    twice = [SECOND[0], SECOND[1] | {"query": SECOND[0]["query"]}]
    (published / "task_1" / "test_items.json").write_text(json.dumps(twice))
    (published / "task_1" / "train_texts.json").write_text(json.dumps([text(i) for i in twice]))
    with caplog.at_level(logging.WARNING):
        stream = read_released(published)
    assert len(stream.tasks[1].items) == 2
    assert "1 questions stand there more than once" in caplog.text
    assert "two answers for one question" in caplog.text


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("manifest.json", "[]", "manifest.json: must hold an object"),
        ("manifest.json", '{"n_tasks": "2"}', "manifest.json: \"n_tasks\" is '2'"),
        ("manifest.json", "[" * 100_000, "manifest.json: is no valid JSON ("),
        ("manifest.json", '{"n_tasks": 3}', "task_2 is missing of the 3 tasks of manifest.json"),
        ("manifest.json", '{"n_tasks": 1}', "task_1 is not among the 1 tasks"),
        ("task_0/test_items.json", json.dumps(SECOND), "and test_items.json differ"),
        ("task_1/test_items.json", "{}", "task_1/test_items.json: must hold a list"),
        ("task_1/test_items.json", '[{"query": "q"}]', 'item 1: "query" or "answer" is missing'),
        ("task_1/train_texts.json", json.dumps([text(SECOND[0])] * 2), "is no item of this task"),
        ("task_1/train_texts.json", "[]", "must hold one text for each of the 2 items"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(published, file, content, words) -> None:
    (published / file).write_text(content)
    assert words in refusal(published)


def test_a_task_without_items_and_a_place_without_a_manifest(published: Path) -> None:
    (published / "task_0" / "train_items.json").unlink()
    assert refusal(published) == (
        "task_0: holds neither train_items.json nor test_items.json; restore one"
    )
    (published / "manifest.json").unlink()
    assert refusal(published).startswith("DIR: holds no manifest.json; give a directory with")


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "s"
    write(symbol_qa(1, 2), out)
    before = (out / "task_0" / "train_items.json").read_bytes()
    with pytest.raises(HoldfastError, match="holds a stream or tasks already"):
        write(symbol_qa(1, 3), out)
    assert (out / "task_0" / "train_items.json").read_bytes() == before


def test_somebody_elses_folders_are_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine" / "task_0" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("precious")
    with pytest.raises(HoldfastError, match="holds a stream or tasks already"):
        write(symbol_qa(2, 2), tmp_path / "mine")
    assert mine.read_text() == "precious"
    assert [path.name for path in mine.parents[1].iterdir() if path.name != ".lock"] == ["task_0"]


MORTAL = """
import os, sys
from holdfast.streams import symbol_qa, write_released
left, replace = int(sys.argv[2]), os.replace
def mortal(source, target):
    global left
    if left == 0:
        os.kill(os.getpid(), 9)
    left -= 1
    replace(source, target)
os.replace = mortal
write_released(symbol_qa(3, 2, seed=1), sys.argv[1])
"""


def test_a_writer_that_was_killed_leaves_no_stream_and_no_obstacle(tmp_path: Path) -> None:
    out, moved = tmp_path / "s", 3
    killed = subprocess.run([sys.executable, "-c", MORTAL, str(out), str(moved)])
    assert killed.returncode == -9
    assert len(list(out.glob("task_*"))) == moved
    with pytest.raises(HoldfastError, match="no manifest"):
        read_released(out)
    write(symbol_qa(2, 2), out)  # fewer tasks than the killed writer had
    assert read_released(out).tasks == symbol_qa(2, 2).tasks
    names = {path.name for path in out.iterdir()}
    assert names - {".lock"} == {"manifest.json", "task_0", "task_1"}
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_details_cannot_stand_for_what_the_layout_says_itself(tmp_path: Path) -> None:
    item = Item("q", "a", details={"answer_aliases": ["zzz"]})
    with pytest.raises(HoldfastError, match='item 1: its details hold "answer_aliases"'):
        write(Stream((Task("t", (item,)),), "s"), tmp_path / "s")
    assert not any((tmp_path / "s").glob("task_*"))


def test_a_stream_that_was_changed_by_hand_is_read_with_a_warning(tmp_path, caplog) -> None:
    write(symbol_qa(1, 2), tmp_path / "s")
    for name in ("train_items.json", "test_items.json", "train_texts.json"):
        path = tmp_path / "s" / "task_0" / name
        path.write_text(path.read_text().replace("oHBvRP", "oHBvRQ"))
    with caplog.at_level(logging.WARNING):
        read_released(tmp_path / "s")
    assert "was changed since its manifest was written" in caplog.text
