"""Samples survive a kill, other settings are refused, and what is answered is not asked again."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from holdfast.capability.data import located
from holdfast.capability.model import Model
from holdfast.capability.outcome import Problem, Sample, score_of, spread
from holdfast.capability.run import Question, measure, questions
from holdfast.capability.store import SampleStore
from holdfast.core.errors import HoldfastError
from holdfast.results.capability import read_boundary

ITEMS = [Problem(f"sums/{n}", "odd" if n % 2 else "even", f"1 + {n}", str(n + 1)) for n in range(6)]


@dataclass
class Sums:
    """Adds, wrongly from 4 on; dies after some answers."""

    name: str = "sums"
    dies_after: int = 99
    asked: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=lambda: {"shots": 2})

    def items(self, data_root, limit):
        return spread(ITEMS, limit)

    def check(self, backbone):
        if backbone is None:
            raise HoldfastError("sums: this model has no fingers; choose another")

    def answer(self, backbone, items, progress):
        for done, item in enumerate(items):
            if done == self.dies_after:
                raise KeyboardInterrupt
            self.asked.append(item.id)
            correct = item.target < "5"
            found = item.target if correct else None
            yield Sample(item.id, item.group, item.prompt, "so", found, item.target, correct)


def model(directory, fingerprint="weights", backbone="a model"):
    return Model("sums model", directory, fingerprint, 3, lambda: backbone)


def showing(_):
    return contextlib.nullcontext(lambda done, total, note: None)


def ask(directory, suite, limit=None, **changes):
    question = Question(suite, suite.items(None, limit))
    measure(model(directory, **changes), [question], showing)


def test_an_interrupted_suite_asks_the_rest_and_counts_all(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path, Sums(dies_after=4))
    assert read_boundary(tmp_path, 3) == []  # half done is no result
    path = tmp_path / "sums.samples.jsonl"
    lines = path.read_bytes()
    path.write_bytes(lines[:-20])  # the process was killed while it wrote the fourth
    second = Sums()
    ask(tmp_path, second)
    assert second.asked == ["sums/3", "sums/4", "sums/5"]
    kept = [json.loads(line)["id"] for line in path.read_text().splitlines()]
    assert kept == [item.id for item in ITEMS]
    (row,) = read_boundary(tmp_path, 3)
    assert (row.items, row.answered, row.extracted, row.correct) == (6, 6, 4, 4)
    assert row.score == pytest.approx(4 / 6)
    groups = json.loads((tmp_path / "sums.json").read_text())["score"]["by_group"]
    assert groups == {"even": {"items": 3, "correct": 2}, "odd": {"items": 3, "correct": 2}}


def test_what_is_answered_costs_nothing(tmp_path):
    ask(tmp_path, Sums())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = Sums(dies_after=0)
    ask(tmp_path, again)
    assert again.asked == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"limit": 3}, "items: 6 -> 3"),
        ({"fingerprint": "other"}, 'model: "weights" -> "other"'),
        ({"suite": Sums(settings={"shots": 4})}, "shots: 2 -> 4"),
    ],
)
def test_other_settings_are_refused_and_change_nothing(tmp_path, changes, told):
    ask(tmp_path, Sums())
    before = (tmp_path / "sums.samples.jsonl").read_bytes()
    with pytest.raises(HoldfastError, match="other settings") as refused:
        ask(tmp_path, **{"suite": Sums(), **changes})
    assert told in str(refused.value) and "\n" not in str(refused.value)
    assert (tmp_path / "sums.samples.jsonl").read_bytes() == before


def test_a_limit_beyond_the_items_is_none(tmp_path):
    ask(tmp_path, Sums())
    again = Sums()
    ask(tmp_path, again, limit=99)
    assert again.asked == []


def test_other_questions_are_refused(tmp_path):
    ask(tmp_path, Sums())
    changed = Sums()
    other = [replace(ITEMS[0], target="7"), *ITEMS[1:]]
    changed.items = lambda data_root, limit: other
    with pytest.raises(HoldfastError, match="data:"):
        ask(tmp_path, changed)


def test_a_model_that_cannot_be_asked_leaves_nothing(tmp_path):
    with pytest.raises(HoldfastError, match="fingers"):
        ask(tmp_path / "new", Sums(), backbone=None)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("other", [{"limit": 3}, {"fingerprint": "other"}])
def test_what_another_process_asked_meanwhile_is_not_mixed_in(tmp_path, other):
    """It began and ended between our look at the directory and our lock on it."""

    def load():
        ask(tmp_path, Sums(), **other)
        return "a model"

    slow = Model("sums model", tmp_path, "weights", 3, load)
    suite = Sums()
    with pytest.raises(HoldfastError, match="other settings"):
        measure(slow, [Question(suite, ITEMS)], showing)
    assert suite.asked == []
    settings = json.loads((tmp_path / "sums.json").read_text())["settings"]
    assert (settings["model"], settings["items"]) == (
        other.get("fingerprint", "weights"),
        other.get("limit", 6),
    )


def test_what_another_process_finished_meanwhile_is_done(tmp_path):
    def load():
        ask(tmp_path, Sums())
        return "a model"

    suite = Sums()
    measure(Model("sums model", tmp_path, "weights", 3, load), [Question(suite, ITEMS)], showing)
    assert suite.asked == []


def test_a_damaged_line_is_named(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path, Sums(dies_after=3))
    path = tmp_path / "sums.samples.jsonl"
    first, _, third = path.read_text().splitlines()
    path.write_text(f'{first}\n{{"id": 1}}\n{third}\n')
    with pytest.raises(HoldfastError, match=r"sums\.samples\.jsonl line 2"):
        ask(tmp_path, Sums())


def test_samples_without_settings_are_not_believed(tmp_path):
    ask(tmp_path, Sums())
    (tmp_path / "sums.json").unlink()
    assert SampleStore(tmp_path).samples("sums") == {}
    again = Sums()
    ask(tmp_path, again)
    assert len(again.asked) == 6
    assert len((tmp_path / "sums.samples.jsonl").read_text().splitlines()) == 6


def test_a_limit_is_spread_over_the_groups_and_keeps_the_order():
    items = [Problem(f"{group}{n}", group, "", "") for group in "abc" for n in range(3)]
    assert [item.id for item in spread(items, 5)] == ["a0", "a1", "b0", "b1", "c0"]
    assert spread(items, None) == spread(items, 99) == items


def test_an_empty_output_is_not_answered():
    silent = Sample("1", "", "?", "", None, "4", False)
    wrong = Sample("2", "", "?", "perhaps", None, "4", False)
    letter = Sample("3", "", "?", "", "B", "B", True)
    score = score_of([silent, wrong, letter])
    assert (score.items, score.answered, score.extracted, score.failed) == (3, 2, 1, 2)


def test_the_nearest_task_is_named(tmp_path):
    with pytest.raises(HoldfastError, match='unknown task "sum"; did you mean sums'):
        questions({"sums": Sums(), "text": Sums("text")}, ["sum"], None, None)
    with pytest.raises(HoldfastError, match="--limit 0"):
        questions({"sums": Sums()}, ["sums"], None, 0)
    with pytest.raises(HoldfastError, match="names no suite; known are sums"):
        questions({"sums": Sums()}, [], None, None)
    with pytest.raises(HoldfastError, match="is no folder"):
        questions({"sums": Sums()}, ["sums"], tmp_path / "none", None)


@pytest.mark.parametrize(
    ("items", "told"),
    [([], "sums: its files hold no item"), ([*ITEMS, ITEMS[2]], "sums: 2 items are called sums/2")],
)
def test_no_items_and_two_of_one_name_are_refused(items, told):
    suite = Sums()
    suite.items = lambda data_root, limit: items
    with pytest.raises(HoldfastError, match=told):
        questions({"sums": suite}, ["sums"], None, None)


def test_files_are_found_with_and_without_the_folder_capability(tmp_path):
    (tmp_path / "sums").mkdir()
    assert located("sums", tmp_path, "sums") == tmp_path / "sums"
    nested = tmp_path / "capability" / "sums"
    nested.mkdir(parents=True)
    assert located("sums", tmp_path, "other", "sums") == nested
    with pytest.raises(HoldfastError, match=r"capability/more\.csv is not there"):
        located("sums", tmp_path, "more.csv")
