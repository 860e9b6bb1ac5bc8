"""Samples survive a kill, other settings are refused, and what is answered is not asked again."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from holdfast.capability.problems import Problem, Sample
from holdfast.capability.run import Model, measure, questions, score_of, spread
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
    problems: list[Problem] = field(default_factory=lambda: ITEMS)

    def items(self, data_root):
        return self.problems

    def check(self, backbone):
        if backbone is None:
            raise HoldfastError("sums: this model has no fingers; choose another")

    def answer(self, backbone, items, stored, answered):
        assert not stored.exists()
        for done, item in enumerate(items):
            if done == self.dies_after:
                raise KeyboardInterrupt
            self.asked.append(item.id)
            correct = item.target < "5"
            extracted = item.target if correct else None
            answered(done + 1)
            yield Sample(item.id, item.group, item.prompt, "so", extracted, item.target, correct)


def ask(directory, suite, limit=None, fingerprint="weights", load=lambda: "a model"):
    """Measure; returns what the progress bar was told."""
    progress = []
    chosen = questions({suite.name: suite}, [suite.name], None, limit)
    bar = contextlib.nullcontext(lambda *update: progress.append(update))
    measure(Model("sums model", directory, fingerprint, 3, load), chosen, lambda _: bar)
    return progress


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_an_interrupted_suite_asks_the_rest_and_counts_all(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path, Sums(dies_after=4))
    assert read_boundary(tmp_path, 3) == []  # half done is no result
    path = tmp_path / "sums.samples.jsonl"
    path.write_bytes(path.read_bytes()[:-20])  # killed while it wrote the fourth
    second = Sums()
    progress = ask(tmp_path, second)
    assert second.asked == ["sums/3", "sums/4", "sums/5"]
    assert progress[0] == (3, 6, "") and progress[-1] == (6, 6, "")
    ids = [json.loads(line)["id"] for line in path.read_text().splitlines()]
    assert ids == [item.id for item in ITEMS]
    (row,) = read_boundary(tmp_path, 3)
    assert (row.items, row.answered, row.extracted, row.correct) == (6, 6, 4, 4)
    assert row.score == pytest.approx(4 / 6)
    groups = json.loads((tmp_path / "sums.json").read_text())["score"]["by_group"]
    assert groups == {"even": {"items": 3, "correct": 2}, "odd": {"items": 3, "correct": 2}}


def test_what_is_answered_costs_nothing(tmp_path):
    ask(tmp_path, Sums())
    before = contents(tmp_path)
    again = Sums(dies_after=0)
    ask(tmp_path, again, limit=99)  # a limit beyond the items is none
    assert again.asked == [] and contents(tmp_path) == before


@pytest.mark.parametrize(
    ("suite", "changes", "message"),
    [
        (Sums(), {"limit": 3}, "items: 6 -> 3"),
        (Sums(), {"fingerprint": "other"}, 'model: "weights" -> "other"'),
        (Sums(settings={"shots": 4}), {}, "shots: 2 -> 4"),
        (Sums(problems=[replace(ITEMS[0], target="7"), *ITEMS[1:]]), {}, "data:"),
    ],
)
def test_other_settings_and_questions_are_refused_and_change_nothing(
    tmp_path, suite, changes, message
):
    ask(tmp_path, Sums())
    before = contents(tmp_path)
    with pytest.raises(HoldfastError, match="other settings") as refused:
        ask(tmp_path, suite, **changes)
    assert message in str(refused.value) and "\n" not in str(refused.value)
    assert contents(tmp_path) == before


def test_a_model_that_cannot_be_asked_leaves_nothing(tmp_path):
    with pytest.raises(HoldfastError, match="fingers"):
        ask(tmp_path / "new", Sums(), load=lambda: None)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("other", [{"limit": 3}, {"fingerprint": "other"}, {}])
def test_what_another_process_asked_meanwhile_is_not_mixed_in(tmp_path, other):
    """It began and ended between our look at the directory and our lock on it."""
    suite = Sums()
    refused = pytest.raises(HoldfastError, match="other settings")
    with refused if other else contextlib.nullcontext():
        ask(tmp_path, suite, load=lambda: ask(tmp_path, Sums(), **other))
    assert suite.asked == []
    settings = json.loads((tmp_path / "sums.json").read_text())["settings"]
    assert settings["model"] == other.get("fingerprint", "weights")
    assert settings["items"] == other.get("limit", 6)


def test_a_damaged_line_is_named(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path, Sums(dies_after=3))
    path = tmp_path / "sums.samples.jsonl"
    first, _, third = path.read_text().splitlines()
    path.write_text(f'{first}\n{{"id": 1}}\n{third}\n')
    with pytest.raises(HoldfastError, match=r"sums\.samples\.jsonl line 2"):
        ask(tmp_path, Sums())


def test_answers_without_settings_are_not_believed(tmp_path):
    ask(tmp_path, Sums())
    (tmp_path / "sums.json").unlink()
    (tmp_path / "sums.answers.jsonl").write_text('["of another model", "5"]\n')
    again = Sums()
    ask(tmp_path, again)
    assert len(again.asked) == 6
    assert len((tmp_path / "sums.samples.jsonl").read_text().splitlines()) == 6


def test_an_empty_output_is_not_answered():
    said = (("", None), ("perhaps", None), ("", "B"))
    score = score_of([Sample("1", "", "?", *each, "B", each[1] == "B") for each in said])
    assert (score.items, score.answered, score.extracted, score.failed) == (3, 2, 1, 2)


def test_a_limit_is_spread_over_the_groups_and_keeps_the_order():
    items = [Problem(f"{group}{n}", group, "", "") for group in "abc" for n in range(3)]
    assert [item.id for item in spread(items, 5)] == ["a0", "a1", "b0", "b1", "c0"]
    assert spread(items, None) == spread(items, 99) == items


@pytest.mark.parametrize(
    ("names", "root", "limit", "items", "message"),
    [
        (["sum"], None, None, ITEMS, 'unknown task "sum"; did you mean sums'),
        (["sums"], None, 0, ITEMS, "--limit 0"),
        ([], None, None, ITEMS, "names no suite; known are sums"),
        (["sums"], "none", None, ITEMS, "is no folder"),
        (["sums"], None, None, [], "sums: its files hold no item"),
        (["sums"], None, None, [*ITEMS, ITEMS[2]], "sums: 2 items are called sums/2"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path, names, root, limit, items, message):
    with pytest.raises(HoldfastError, match=message):
        questions({"sums": Sums(problems=items)}, names, root and tmp_path / root, limit)
