"""Verdicts by item: they are the matrix, item by item, and survive an interruption."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from holdfast import RunConfig, Trajectory, load_stream, recipe
from holdfast.analysis import read_items
from holdfast.analysis.items import (
    by_age,
    by_length,
    by_rehearsal,
    item_histories,
    rehearsed_tasks,
    sampled,
)
from holdfast.cli.main import app
from holdfast.core.errors import HoldfastError
from holdfast.results.items import read_rows, write_row


@pytest.fixture(scope="module")
def config(backbone_directory) -> RunConfig:
    return RunConfig.of(
        {
            "method": "replay_merge",
            "seed": 3,
            "backbone": {"name": str(backbone_directory)},
            "stream": {"tasks": 9, "items_per_task": 8},
            "template": {"append_eos": True},
            "lora": {"rank": 8, "alpha": 16},
            "optim": {"epochs": 3, "batch_size": 4, "lr": 0.01},
            "sampling": {"samples": 6, "max_new_tokens": 16, "keep": True},
            "evaluation": {"max_new_tokens": 24, "items": True},
        }
    )


@pytest.fixture(scope="module")
def learned_once(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("items") / "run"
    for horizon in (2, 4):  # continued once
        Trajectory(config, place).advance(horizon)
    return place


@pytest.fixture
def learned(config: RunConfig, learned_once: Path, tmp_path: Path) -> Trajectory:
    return Trajectory(config, shutil.copytree(learned_once, tmp_path / "run"))


def test_the_verdicts_are_the_matrix(tmp_path: Path) -> None:
    changes = ["method=merge", "stream.items_per_task=8", "evaluation.items=true"]
    learned = Trajectory(RunConfig.of(recipe("full_stack"), changes), tmp_path / "run")
    for horizon in (2, 3):  # continued once
        learned.advance(horizon)
    frame = read_items(learned.directory).to_frame()
    assert len(frame) == 8 * (1 + 2 + 3)
    assert 0.2 < frame["recalled"].mean() < 1  # some are forgotten
    for (after_task, on_task), part in frame.groupby(["after_task", "on_task"]):
        assert part["recalled"].mean() == learned.matrix[after_task, on_task]
        items = learned.stream.tasks[on_task - 1].items
        assert list(part["question"]) == [item.question for item in items]
        assert (part["age"] == after_task - on_task).all()
    assert by_age(frame)["observed"].sum() == len(frame)


def test_keeping_them_changes_no_number(config: RunConfig, learned: Trajectory) -> None:
    without = config.model_dump(mode="json")
    without["evaluation"]["items"] = False
    place = learned.directory.with_name("without")
    other = Trajectory(RunConfig.of(without), place)
    assert other.advance(4) == learned.matrix
    shutil.rmtree(place / "replay")
    ours, theirs = (
        {path.name: path.read_bytes() for path in (folder / "factors").iterdir()}
        for folder in (learned.directory, place)
    )
    assert ours == theirs
    assert not (place / "items").exists()
    with pytest.raises(HoldfastError, match=r"no verdicts by item; .*evaluation\.items=true"):
        read_items(place)


def test_samples_count_from_the_row_after_they_were_drawn(learned: Trajectory) -> None:
    """The samples of one task are replaced by written ones of which everything is known."""
    stream, place = learned.stream, learned.directory
    first, second = stream.tasks[0].items[:2]
    texts = [
        f"Question: {first.question}\nAnswer: \\boxed{{{first.answer}}}",
        f"Question: {first.question}\nAnswer: \\boxed{{{second.answer}}}",
        f"Question: {second.question}\nAnswer: \\boxed{{{second.answer}}} and more",
        "nothing of the kind",
    ]
    for task in (1, 2, 3, 4):
        lines = texts if task == 3 else []
        path = place / "replay" / f"task-{task:04d}.jsonl"
        path.write_text("".join(json.dumps({"tokens": [], "text": text}) + "\n" for text in lines))
    assert learned.samples(3) == texts
    items = read_items(place)
    assert rehearsed_tasks(items).to_dict("list") == {
        "task": [3, 3],
        "on_task": [1, 2],
        "share": [0.75, 0],
    }
    frame = items.to_frame()
    seen = frame[frame["rehearsed"] > 0]
    assert set(seen["question"]) == {first.question, second.question}
    assert set(seen["after_task"]) == {3, 4}  # not yet at rows before they were drawn
    assert set(seen.loc[seen["question"] == first.question, "rehearsed"]) == {2}
    table = by_rehearsal(frame).set_index("rehearsed")
    assert table["observed"].to_dict() == {"0": 30, "1": 1, "2": 1}
    shutil.rmtree(place / "items")  # a run that keeps samples alone
    alone = read_items(place)
    assert alone.to_frame().empty and len(sampled(alone)) == 1
    with pytest.raises(HoldfastError, match="keeps no samples of task 9"):
        learned.samples(9)


def test_a_figure_keeps_its_name(learned: Trajectory, tmp_path: Path) -> None:
    """What stands behind its last dot is no format."""
    for name in ("lr0.01", "drawn.pdf"):
        figure = str(tmp_path / name)
        assert (
            app(["items", str(learned.directory), "--figure", figure], standalone_mode=False)
            is None
        )
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert files == {f"{name}.{kind}" for name in ("lr0.01", "drawn") for kind in ("png", "pdf")}


def test_a_life_is_told_and_the_first_lost_come_first(learned: Trajectory) -> None:
    place = learned.directory
    for row in range(1, 5):
        verdicts = {task: [True] * 8 for task in range(1, row + 1)}
        if row >= 3:
            verdicts[1][4] = False  # lost at age 2
        if row >= 2:
            verdicts[2][0] = False  # never recalled
        if row == 2:
            verdicts[1][1] = False  # comes back
        if row == 4:
            verdicts[3][7] = False  # lost at age 1
        write_row(place, row, verdicts)
    table = item_histories(read_items(place).to_frame())
    records = {(row["on_task"], row["item"]): row for row in table.to_dict("records")}
    assert [(row["on_task"], row["item"]) for row in table.head(2).to_dict("records")] == [
        (3, 8),
        (1, 5),
    ]
    assert records[1, 5]["life"] == "1100" and records[1, 5]["lost_after"] == 3
    assert records[1, 2]["life"] == "1011" and records[2, 1]["life"] == "000"
    assert table["lost_after"].notna().sum() == 2


def test_what_is_damaged_or_does_not_fit_is_named(learned: Trajectory) -> None:
    place = learned.directory
    assert set(read_rows(place, 3)) == {1, 2, 3}  # a row beyond the commit does not count
    write_row(place, 2, {1: [True] * 8, 2: [True] * 7})
    with pytest.raises(HoldfastError, match="task 2 has 7 verdicts, which are not"):
        read_items(place)
    (place / "items" / "row-0002.json").write_text('{"after_task": 2, "recalled": {"1": "12"}}')
    with pytest.raises(HoldfastError, match=r"row-0002\.json: is no row of verdicts"):
        read_items(place)


def test_verdicts_beside_the_facts_of_another_stream_are_refused(
    config: RunConfig, tmp_path: Path
) -> None:
    facts, place = tmp_path / "facts.jsonl", tmp_path / "run"
    facts.write_text('{"question": "a", "answer": "b"}\n')
    stream = {"name": str(facts), "tasks": None, "items_per_task": None}
    Trajectory(RunConfig.of({**config.model_dump(), "stream": stream}), place).advance(1)
    facts.write_text('{"question": "a", "answer": "c"}\n')
    with pytest.raises(HoldfastError, match="does not have the tasks that were learned; put back"):
        read_items(place)
    assert len(read_items(place, stream=load_stream([("a", "b")])).to_frame()) == 1


def test_lengths_are_thirds(learned: Trajectory) -> None:
    frame = read_items(learned.directory).to_frame()
    assert by_length(frame).empty  # the questions of this stream are equally long
    frame["length"] = frame["item"]
    frame["recalled"] = (frame["item"] > 3) & (frame["after_task"] == 4)
    assert by_length(frame).to_dict("list") == {
        "length": ["1-3", "4-6", "7-8"],
        "recalled": [0, 1, 1],  # after the last row
        "observed": [12, 12, 8],
    }
