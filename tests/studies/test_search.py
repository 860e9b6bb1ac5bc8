"""Successive halving over real trajectories: what goes on, what it costs, what stopping changes."""

from __future__ import annotations

import csv
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.config import build, sha256_of
from holdfast.results import RunRecord, final
from holdfast.studies import search as search_module
from holdfast.studies.directory import lock_study
from holdfast.studies.executor import Cell, Job, Outcome, Watch
from holdfast.studies.recipe import SearchRecipe
from holdfast.studies.search import Search, Standing, rank, score
from tests.refused import line_of
from tests.studies.inline import Inline, Killed

SPACE = {
    "weight": ["none", {"si": {"si.strength": [1, 2]}}],
    "allocation": ["shared", "merge"],
}  # 6 candidates
SCHEDULE = {"horizons": [1, 2, 3], "survivors": ["half", 1]}
COST = 6 + 3 + 1


def test_the_score_is_the_mean_of_all_seeds() -> None:
    assert score([0.25, 0.5, 0.75]) == 0.5
    # A plain sum gives another number in this order than in the reverse one.
    assert sum([0.1, 0.2, 0.3]) != sum([0.3, 0.2, 0.1])
    assert score([0.1, 0.2, 0.3]) == score([0.3, 0.2, 0.1])
    assert score([0.25, None]) is None
    one_failed = Standing(cast(Any, None), 1, (0.25, 0.75, None), None, 1, "failed", "no room")
    assert one_failed.deviation is None


# Few values, so that ties are common; 653 of 1,000 in two orders of summing.
@given(st.lists(st.sampled_from([None, 0.0, -0.0, 0.25, 0.6529999999999999, 0.653, 1.0])))
def test_ranking_orders_everyone_once(values: list[float | None]) -> None:
    scores = {str(place): value for place, value in enumerate(values)}
    ranked = rank(scores)
    assert sorted(ranked) == sorted(scores)
    for name, later in itertools.pairwise(ranked):
        value, lower = scores[name], scores[later]
        if value is None:
            assert lower is None and int(name) < int(later)
        elif lower is not None:
            tie = value == pytest.approx(lower) and int(name) < int(later)
            assert tie or value > lower + 1e-6


@pytest.fixture(scope="module")
def any_search(
    tmp_path_factory: pytest.TempPathFactory, backbone_directory: Path
) -> Callable[..., Search]:
    """A search of 6 candidates over three tasks, that takes seconds."""
    streams = tmp_path_factory.mktemp("streams")

    def of(
        directory: Path, store: Path | None = None, overrides: list[str] | None = None,
        items: int = 3, **parts: Any,
    ) -> Search:  # fmt: skip
        values = {"base": "none", "space": SPACE, "schedule": SCHEDULE, "seeds": [3]} | parts
        facts = streams / f"facts-{items}.jsonl"
        rows = [
            {"task": task, "question": f"{task}{item}", "answer": "abcd"[answer % items]}
            for task in range(4)
            for item in range(items)
            for answer in [task + item + (task * item if items > 3 else 0)]
        ]
        facts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        base = {
            "backbone": {"name": str(backbone_directory)},
            "stream": {"name": str(facts)},
            "lora": {"rank": 4, "alpha": 8},
            # Of three items a task all candidates recall the same, however long they learn.
            "optim": {"epochs": 12 if items > 3 else 2, "batch_size": 3, "lr": 0.03},
            "evaluation": {"max_new_tokens": 24},
        }
        recipe = build(SearchRecipe, values, source="test")
        return Search(recipe, base, overrides or [], directory, store)

    return of


@pytest.fixture
def search(tmp_path: Path, any_search: Callable[..., Search], quick: None) -> Callable[..., Search]:
    """The same, in directories of this test."""

    def of(directory: str = "search", store: str | None = None, **parts: Any) -> Search:
        place = None if store is None else tmp_path / store
        return any_search(tmp_path / directory, place, **parts)

    return of


class Learned(NamedTuple):
    """A search that has ended; tests copy it to change it."""

    search: Search
    executor: Inline
    trace: list[Standing]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, any_search: Callable[..., Search]) -> Learned:
    """The search in one go."""
    halving, executor = any_search(tmp_path_factory.mktemp("whole") / "search"), Inline()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        return Learned(halving, executor, halving.run(executor))


@pytest.fixture
def again(whole: Learned, search: Callable[..., Search], tmp_path: Path) -> Search:
    """A copy of the search that has ended."""
    shutil.copytree(whole.search.directory, tmp_path / "search")
    return search()


class Begun(Watch):
    """Keeps the cells, the tasks and the missing tasks of each horizon that began."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int, int]] = []

    def begins(self, cells: int, tasks: int, missing: int) -> None:
        self.begun.append((cells, tasks, missing))


class Finished(Inline):
    """Advances cells without learning anything."""

    def _tasks(self, job: Job) -> Iterator[int]:
        return iter(())


def table(search: Search, name: str) -> list[dict[str, str]]:
    with (search.directory / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def outputs(search: Search) -> dict[str, bytes]:
    """Everything but the cost, which tells seconds."""
    return {
        path.name: path.read_bytes()
        for path in search.directory.iterdir()
        if path.suffix in (".csv", ".json") and path.name != "cost.json"
    }


def test_the_best_go_on_and_nobody_else_learns_more(whole: Learned) -> None:
    halving, executor, trace = whole
    assert len(executor.learned) == COST == halving.recipe.schedule.cost(6)
    cost = json.loads((halving.directory / "cost.json").read_text())
    assert (cost["tasks"], cost["exhaustive"]) == (COST, 18)
    assert cost["seconds"] > 0
    sizes = {horizon: sum(row.horizon == horizon for row in trace) for horizon in (1, 2, 3)}
    assert sizes == {1: 6, 2: 3, 3: 1}
    for horizon, following in ((1, 2), (2, 3)):
        rows = [row for row in trace if row.horizon == horizon]
        scores = [row.score for row in rows]
        assert scores == sorted(scores, reverse=True)
        promoted = [row.candidate.name for row in rows if row.fate == "promoted"]
        assert promoted == [row.candidate.name for row in rows[: sizes[following]]]
        went_on = {row.candidate.name for row in trace if row.horizon == following}
        assert went_on == set(promoted)


def test_a_score_is_the_mean_over_seeds_of_what_the_trajectories_hold(search):
    halving = search(
        seeds=[3, 4],
        items=4,
        space={"rate": [{"shared": {"optim.lr": [0.00001, 0.03]}}]},
        schedule={"horizons": [1, 2], "survivors": [1]},
    )
    watch = Begun()
    trace = halving.run(Inline(), watch)
    assert watch.begun == [(4, 4, 4), (2, 2, 2)]  # at the second horizon only the second task
    cost = json.loads((halving.directory / "cost.json").read_text())
    assert (cost["tasks"], cost["exhaustive"]) == (4 + 2, 8)
    assert halving.run(Inline()) == trace  # also of those that have gone on since
    for row in trace:
        cells = halving.cells([row.candidate], row.horizon)
        assert [cell.config.seed for cell in cells] == [3, 4]
        matrices = [RunRecord.open(cell.directory(halving.store)).matrix for cell in cells]
        finals = tuple(final(matrix.up_to(row.horizon)) for matrix in matrices)
        assert row.finals == finals
        assert row.score == sum(finals) / 2
        assert row.deviation == pytest.approx(abs(finals[0] - finals[1]) / 2**0.5)
    # The candidates differ, so the ranking means something.
    slow, fast = "vanilla optim.lr=1e-05", "vanilla optim.lr=0.03"
    assert [(row.horizon, row.candidate.name, row.fate) for row in trace] == [
        (1, fast, "promoted"), (1, slow, "eliminated"), (2, fast, "finished")
    ]  # fmt: skip
    assert trace[0].score > trace[1].score


def test_the_tables_tell_everything(whole: Learned) -> None:
    halving, _, trace = whole
    rows = table(halving, "trace")
    assert len(rows) == len(trace) == COST
    assert list(rows[0]) == [
        "horizon", "rank", "candidate", "method", "si.strength", "score", "score_sd",
        "final_3", "fate", "error",
    ]  # fmt: skip
    assert json.loads((halving.directory / "trace.json").read_text())[0]["score"] == trace[0].score
    leaders = table(halving, "leaderboard")
    assert [row["rank"] for row in leaders] == [str(place) for place in range(1, 7)]
    assert [int(row["horizon"]) for row in leaders] == [3] + [2] * 2 + [1] * 3
    assert {row["candidate"] for row in leaders} == {c.name for c in halving.candidates}
    assert [row["fate"] for row in leaders[:2]] == ["finished", "eliminated"]


def test_killed_at_random_points_the_tables_are_the_same_bytes(whole, search):
    random = Random(5)
    killed = search("killed")
    kills = 0
    while True:
        try:
            killed.run(Inline(lives=random.randrange(1, 3)))
            break
        except Killed:
            kills += 1
    assert kills >= 4
    assert outputs(killed) == outputs(whole.search)


def test_tables_of_a_cell_killed_after_its_last_commit_are_made_again(again: Search) -> None:
    """Its trajectory is where it should be, so no worker opens it; its matrix.csv lags behind."""
    tables = {path: path.read_bytes() for path in again.store.glob("*/m*.*")}
    assert len(tables) == 2 * 6
    for path in tables:
        path.unlink()
    executor = Inline()
    again.run(executor)
    assert executor.learned == []
    assert {path: path.read_bytes() for path in tables} == tables


def test_another_schedule_over_the_same_store_learns_nothing_twice(whole, search, tmp_path):
    first, second = whole.executor, Inline()
    shutil.copytree(whole.search.store, tmp_path / "store")
    other = search("second", "store", schedule={"horizons": [1, 3], "survivors": [2]})
    trace = other.run(second)
    assert set(first.learned).isdisjoint(second.learned)
    assert json.loads((other.directory / "store.json").read_text()) == {"store": "../store"}
    alone = search("third", "own", schedule={"horizons": [1, 3], "survivors": [2]})
    executor = Inline()
    assert alone.run(executor) == trace
    assert len(second.learned) < len(executor.learned) == 6 + 2 * 2


def test_a_store_elsewhere_is_recorded_until_it_is_its_own(tmp_path: Path) -> None:
    """However its own is spelled."""
    place, elsewhere = tmp_path / "study", tmp_path / "study" / "store.json"
    for own in (place / "cells", tmp_path / "other" / ".." / "study" / "cells"):
        with lock_study(place, {"study": "search"}, tmp_path / "store"):
            assert json.loads(elsewhere.read_text()) == {"store": "../store"}
        with lock_study(place, {"study": "search"}, own):
            assert not elsewhere.exists()


def test_ties_go_to_whom_the_space_names_first_at_every_horizon(search, monkeypatch):
    """Also where they stood in another order at the horizon before."""
    halving = search()
    names = [candidate.name for candidate in halving.candidates]

    def scored(outcome: Outcome, *_: Any) -> tuple[Cell, None]:
        return outcome.cell, None

    def score(cell: Cell) -> float:
        return names.index(cell.candidate) / 100 if cell.horizon == 1 else 0.5

    monkeypatch.setattr(search_module, "measured", scored)
    monkeypatch.setattr(search_module, "final", score)
    monkeypatch.setattr(halving, "cost", lambda _: {})
    trace = halving.run(Finished())
    assert [row.candidate.name for row in trace if row.horizon == 1] == names[::-1]
    assert [row.candidate.name for row in trace if row.horizon == 2] == names[3:]
    assert [row.candidate.name for row in trace if row.horizon == 3] == names[3:4]


def test_a_cell_that_fails_is_last_and_stops_nobody(whole, search, tmp_path):
    shutil.copytree(whole.search.store, tmp_path / "store")
    halving = search(store="store")
    failed = next(candidate for candidate in halving.candidates if candidate.name == "merge")
    shutil.rmtree(halving.cells([failed], 1)[0].directory(halving.store))

    fails = Inline(lambda cell: "ran out of memory" if cell.candidate == "merge" else None)
    trace = halving.run(fails)
    row = next(row for row in trace if row.candidate.name == "merge")
    assert (row.rank, row.score, row.fate, row.error) == (6, None, "failed", "ran out of memory")
    assert [row.horizon for row in trace].count(3) == 1
    assert table(halving, "leaderboard")[-1]["error"] == "ran out of memory"
    nobody = search("another").run(Inline(lambda _: "no room"))
    assert {(row.horizon, row.fate) for row in nobody} == {(1, "failed")}


def test_candidates_that_learn_the_same_are_refused(search: Callable[..., Search]) -> None:
    space = {"weight": ["none", {"si": {"sd.strength": [1, 3]}}]}
    schedule = {"horizons": [1, 2], "survivors": [1]}
    line = line_of(search, space=space, schedule=schedule)
    assert '"si sd.strength=1" and "si sd.strength=3" learn the same' in line


def test_a_directory_of_another_search_is_refused_and_left_alone(
    again, search, backbone_directory, monkeypatch
):
    before = outputs(again)
    executor = Inline()
    further = search(schedule={"horizons": [1, 2, 4], "survivors": ["half", 2]})
    assert "a study with other settings (schedule.horizons" in line_of(further.run, executor)
    monkeypatch.chdir(backbone_directory.parent)  # the same model by another path
    faster = search(overrides=["optim.lr=0.5", f"backbone.name={backbone_directory.name}"])
    assert "other settings (optim.lr: 0.03 -> 0.5); choose" in line_of(faster.run, executor)
    suite = lock_study(again.directory, {**again.settings(), "study": "suite"}, again.store)
    assert "holds a search, and this is a suite; choose another" in line_of(suite.__enter__)
    assert executor.learned == []
    assert outputs(again) == before


def test_a_cell_whose_recorded_settings_differ_is_never_reused(again, search):
    cell = again.cells(again.candidates[:1], 1)[0]
    config = cell.directory(again.store) / "config.json"
    values = json.loads(config.read_text())
    values["numbers"]["optim"]["lr"] = values["config"]["optim"]["lr"] = 0.7
    config.write_text(json.dumps({**values, "identity": sha256_of(values["numbers"])}))
    other = search("other", str(again.store))
    assert "optim.lr: 0.7 -> 0.03" in line_of(other.run, Inline())


def test_a_foreign_directory_and_too_far_a_horizon_are_refused(search, tmp_path):
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "thesis.txt").write_text("precious")
    assert "holds thesis.txt but no study" in line_of(search().run, Inline())
    (tmp_path / "search" / "study.json").write_text("[1]")
    assert "study.json: is no study's; restore it" in line_of(search().run, Inline())
    assert "horizon 9 is beyond the stream" in line_of(search, schedule={"horizons": [9]})
