"""A study's tables and figures of items and of samples."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from holdfast.analysis import analyse, read_study
from holdfast.analysis.items import Items, item_histories, read_items, sampled
from holdfast.report.figures import study_figures
from holdfast.report.style import Drawing
from holdfast.streams import Item, Stream, Task, Template
from tests.analysis.synthetic import ITEMS, asked, verdicts, write_kept, write_trajectory

TASKS, SEEDS = 6, (41, 42)
KEPT = {"replay_merge": ("items", "samples"), "merge": ("items",), "replay": ("samples",)}


@pytest.fixture(scope="module")
def study_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kept")
    for method, of in KEPT.items():
        for seed in SEEDS:
            write_kept(place / f"{method}-{seed}", method, seed, TASKS, of=of)
    write_trajectory(place / "vanilla-41", "vanilla", 41, TASKS, ITEMS)
    return place


def test_items_are_counted_over_the_seeds(study_directory: Path) -> None:
    table = analyse(read_study(study_directory)).tables["items"]
    assert list(dict.fromkeys(table["method"])) == ["replay_merge", "merge"]  # by Final
    assert set(table["seeds"]) == {2}
    by_age = table[table["by"] == "age"].set_index(["method", "group"])
    for method in ("replay_merge", "merge"):
        by_seed = [verdicts(method, seed, TASKS) for seed in SEEDS]
        for group, ages in (("0", [0]), ("1", [1]), ("2-3", [2, 3]), ("4-5", [4, 5])):
            seen = [
                recalled[row, row - age]
                for recalled in by_seed
                for age in ages
                for row in range(age, TASKS)
            ]
            line = by_age.loc[(method, group)]
            assert line["observed"] == np.size(seen)
            assert line["recalled"] == pytest.approx(np.mean(seen))
    rehearsed = table[table["by"] == "rehearsed"]
    assert set(rehearsed["method"]) == {"replay_merge"}
    assert rehearsed["observed"].sum() == len(SEEDS) * TASKS * ITEMS


def test_samples_are_of_each_run_and_their_ages_of_each_method(study_directory: Path) -> None:
    tables = analyse(read_study(study_directory)).tables
    samples = tables["samples"]
    assert set(zip(samples["method"], samples["seed"], strict=True)) == {
        (method, seed) for method in ("replay_merge", "replay") for seed in SEEDS
    }
    for row in samples.to_dict("records"):
        questions = asked(row["seed"], row["task"])
        assert row["samples"] == len(questions)
        assert (row["right"], row["chimeras"], row["other"]) == (0.75, 0.25, 0)
        assert row["distinct"] == len(set(questions)) / (ITEMS * (row["task"] - 1))
        learned = row["task"] - 1
        ages = [learned - on for number, (on, _) in enumerate(questions) if number % 4]
        assert row["newest"] == np.mean([age < learned / 4 for age in ages])
    ages = tables["samples_by_age"].set_index(["method", "age"])
    for age in range(TASKS - 1):
        shares = []
        for seed in SEEDS:
            for task in range(age + 2, TASKS + 1):
                by_task = Counter(on for on, _ in asked(seed, task))
                shares.append(by_task[task - 1 - age] / 40)
        assert ages.at[("replay", age), "share"] == pytest.approx(np.mean(shares))
        assert ages.at[("replay", age), "observed"] == len(shares)
    whole = ages.loc["replay"]
    assert (whole["share"] * whole["observed"]).sum() == pytest.approx(len(SEEDS) * (TASKS - 1))


def test_a_run_that_went_further_counts_as_it_stood(tmp_path: Path) -> None:
    for seed, tasks in ((41, TASKS), (42, TASKS), (43, TASKS + 3)):
        write_kept(tmp_path / str(seed), "replay_merge", seed, tasks)
    tables = analyse(read_study(tmp_path)).tables
    assert list(tables["samples"].groupby("seed")["task"].max()) == [TASKS] * 3
    assert tables["items"].query("by == 'rehearsed'")["observed"].sum() == 3 * TASKS * ITEMS


def test_where_nothing_was_kept_it_is_said(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "a", "vanilla", 41, 3)
    absent = analyse(read_study(tmp_path)).absent
    assert "evaluation.items=true" in absent["items"]
    assert "sampling.keep=true" in absent["samples"] == absent["samples_by_age"]


def test_the_figures_are_the_tables(study_directory: Path) -> None:
    study = read_study(study_directory)
    analysis = analyse(study)
    figures = study_figures(study, analysis).figures
    assert {"noise", "items", "samples"} <= {*figures}
    assert all(isinstance(figure, Drawing) for figure in figures.values())
    left, right = figures["samples"].axes[:2]
    ages = analysis.tables["samples_by_age"].query("method == 'replay_merge'")
    assert [bar.get_height() for bar in left.patches] == pytest.approx(list(ages["share"]))
    assert {round(bar.get_height(), 9) for bar in right.patches} == {0.75, 0.25, 0}
    items = analysis.tables["items"]
    age, rehearsed = figures["items"].axes
    assert len(age.lines) == 2 and len(rehearsed.lines) == 1
    first = items.query("method == 'replay_merge' and by == 'age'")
    assert list(age.lines[0].get_ydata()) == pytest.approx(list(first["recalled"]))


def test_a_question_that_is_taught_again_counts_as_taught_last() -> None:
    """As in a memory, of which an answer was corrected."""
    old, new = Item("q", "old"), Item("q", "new")
    tasks = (Task("1", (old, Item("other", "x"))), Task("2", (new,)), Task("3", (Item("s", "z"),)))
    template = Template(Template.Config(append_eos=True))
    texts = [template.text(old), template.text(old), template.text(new)]
    stream = Stream(tasks, "m", repeats=True)
    with_samples = Items(stream, template, 3, {}, {2: texts, 3: texts})
    table = sampled(with_samples).set_index("task")
    assert (table.at[2, "right"], table.at[2, "chimeras"]) == (2 / 3, 1 / 3)  # the old answer
    assert (table.at[3, "right"], table.at[3, "chimeras"]) == (1 / 3, 2 / 3)  # the new one
    assert table.at[2, "distinct"] == table.at[3, "distinct"] == 1 / 2
    assert [counts.sum() for counts in with_samples.rehearsals().values()] == [6, 6, 0]


def test_histories_are_those_of_the_verdicts(study_directory: Path) -> None:
    table = item_histories(read_items(study_directory / "merge-41").to_frame())
    recalled = verdicts("merge", 41, TASKS)
    for row in table.to_dict("records"):
        task, item = row["on_task"] - 1, row["item"] - 1
        assert row["life"] == "".join("01"[int(verdict)] for verdict in recalled[task:, task, item])
