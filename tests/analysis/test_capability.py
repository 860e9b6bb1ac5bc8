"""General capability beside recall, and the uncertainty of its change."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from holdfast.analysis import analyse, read_study
from holdfast.analysis.uncertainty import interval, ratio_draws
from holdfast.capability.problems import Sample
from holdfast.capability.run import score_of
from holdfast.report import plot_capability
from holdfast.report.figures import study_figures
from holdfast.report.pages import render
from holdfast.results.capability import Score, boundary_directory, text_score, write_result
from tests.analysis.synthetic import change, write_suite, write_trajectory

TASKS, ITEMS = 3, 60


def count(cell: Path, after: int, right: int, items: int = 40, suite: str = "gsm8k") -> None:
    """Write a result of which no samples were kept."""
    score = Score(items, items, items, 0, right, {"": {"items": items, "correct": right}})
    settings = {"model": f"{cell}{after}", "items": items}
    write_result(boundary_directory(cell, after), suite, settings, score)


@pytest.fixture
def cells(tmp_path: Path) -> list[Path]:
    """The trajectories vanilla-1, merge-1 and merge-2 of a suite."""
    place = write_suite(tmp_path / "suite", methods=("vanilla", "merge"), seeds=(1, 2), tasks=TASKS)
    return [
        next((place / "cells").glob(f"{name}-*")) for name in ("vanilla-1", "merge-1", "merge-2")
    ]


def test_the_change_is_against_the_unmodified_backbone(cells: list[Path]) -> None:
    for cell, right in zip(cells, (4, 20, 24), strict=True):
        count(cell, TASKS, right)
    count(cells[0], 0, 32)
    text = boundary_directory(cells[0], TASKS)
    write_result(text, "text", {"model": "x", "items": 9}, text_score(9, 2.5))
    rows = table_of(cells, "gsm8k")
    assert rows["merge"]["value"] == pytest.approx(22 / 40)
    assert rows["merge"]["value_sd"] == pytest.approx(8**0.5 / 40)
    assert rows["merge"]["change"] == pytest.approx(22 / 40 - 32 / 40)
    assert rows["vanilla"]["before"] == rows["merge"]["before"] == 0.8
    row = table_of(cells, "text")["vanilla"]
    assert (row["unit"], row["value"], row["seeds"]) == ("bits per byte", 2.5, 1)
    assert np.isnan(row["before"])  # nobody measured it
    count(cells[2], TASKS, 5, items=10)
    absent = analyse(read_study(cells[0].parent.parent)).absent
    assert "gsm8k was not asked alike" in absent["capability"]


def test_the_backbone_before_is_that_of_the_run(tmp_path: Path) -> None:
    for name, before, after in (("small", 8, 4), ("large", 32, 30)):
        place = tmp_path / name
        write_trajectory(place, "vanilla", 1, tasks=TASKS)
        change(place, backbone={"name": name, "fingerprint": name}, numbers={"backbone": name})
        for task, right in ((0, before), (TASKS, after)):
            count(place, task, right)
    table = analyse(read_study(tmp_path)).tables["capability"]
    rows = table.set_index("method")[["before", "change"]].to_dict("index")
    assert rows == {
        "vanilla backbone.name=small": pytest.approx({"before": 8 / 40, "change": -4 / 40}),
        "vanilla backbone.name=large": pytest.approx({"before": 32 / 40, "change": -2 / 40}),
    }
    (axes,) = plot_capability(table).axes
    lines = [tuple(line.get_ydata()) for line in axes.lines]
    assert sorted(lines) == [(0.2, 0.2), (0.8, 0.8)]


def test_the_four_benchmarks_have_an_unweighted_average_by_seed(cells: list[Path]) -> None:
    four = ("gsm8k", "math", "mgsm", "mmlu_redux")
    for cell, correct in ((cells[1], (6, 2, 0, 10)), (cells[2], (8, 4, 2, 20))):
        for name, right in zip(four, correct, strict=True):
            items = 10 if name == "math" else 40  # the mean is of shares, not of items
            count(cell, TASKS, right, items, name)
            count(cell, 0, items // 2, items, name)
    count(cells[0], TASKS, 4)
    (average,) = table_of(cells, "average").values()  # vanilla lacks three
    shares = (6 / 40 + 2 / 10 + 0 + 10 / 40) / 4, (8 / 40 + 4 / 10 + 2 / 40 + 20 / 40) / 4
    assert (average["method"], average["seeds"], average["items"]) == ("merge", 2, 130)
    assert average["value"] == pytest.approx(sum(shares) / 2)
    assert average["value_sd"] == pytest.approx((shares[1] - shares[0]) / 2**0.5)
    assert average["change"] == pytest.approx(sum(shares) / 2 - 0.5)


def write(cell: Path, after: int, suite: str, right: np.ndarray) -> None:
    """Write a result with its samples. right: [items], or of MGSM [problems, languages]."""
    place = boundary_directory(cell, after)
    answers = [
        Sample(f"{suite}/{group}/{n}", str(group), "", "", None, "", bool(value))
        for n, row in enumerate(right.reshape(len(right), -1))
        for group, value in enumerate(row)
    ]
    if suite == "text":
        for n, (answer, bits) in enumerate(zip(answers, right, strict=True)):
            answer.details.update(bits=float(bits), bytes=10 + n)
    write_result(place, suite, {"model": f"{cell}{after}", "items": len(right)}, score_of(answers))
    lines = (json.dumps(asdict(sample)) + "\n" for sample in answers)
    (place / f"{suite}.samples.jsonl").write_text("".join(lines))


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(4)


def table_of(cells: list[Path], suite: str) -> dict[str, dict]:
    table = analyse(read_study(cells[0].parent.parent)).tables["capability"]
    return {row["method"]: row for row in table[table["suite"] == suite].to_dict("records")}


def test_drawing_groups_of_like_items_is_drawing_items(random: np.random.Generator) -> None:
    values = random.integers(-1, 2, size=(3, 200)).astype(float)
    weights = random.integers(1, 4, size=200).astype(float)
    drawn = ratio_draws(values, weights)
    slow = []
    for _ in range(8000):
        seeds, items = random.integers(3, size=3), random.integers(200, size=200)
        slow.append(values[np.ix_(seeds, items)].mean(axis=0).sum() / weights[items].sum())
    assert np.quantile(drawn, (0.025, 0.5, 0.975)) == pytest.approx(
        np.quantile(slow, (0.025, 0.5, 0.975)), abs=0.006
    )
    assert not np.array_equal(drawn, ratio_draws(values, weights, 1))  # another suite's items
    assert np.array_equal(drawn, ratio_draws(values, weights))


def test_items_are_paired_with_those_before(cells, random) -> None:
    base = random.random(ITEMS) < 0.5
    write(cells[0], 0, "gsm8k", base)
    for place, cell in enumerate(cells):
        lost = random.random(ITEMS) < 0.1 * (place + 1)
        write(cell, TASKS, "gsm8k", base & ~lost)
    rows = table_of(cells, "gsm8k")
    vanilla, merge = rows["vanilla"], rows["merge"]
    assert (vanilla["drawn"], merge["drawn"]) == ("items", "items and seeds")
    for row in rows.values():
        assert row["low"] < row["change"] < row["high"]
        assert row["value_low"] < row["value"] < row["value_high"]
    # Paired: a tenth of the items changed, so the change is known better than either value.
    assert vanilla["high"] - vanilla["low"] < 0.6 * (vanilla["value_high"] - vanilla["value_low"])
    p = -vanilla["change"]
    width = 2 * 1.96 * (p * (1 - p) / ITEMS) ** 0.5
    assert vanilla["high"] - vanilla["low"] == pytest.approx(width, rel=0.25)
    study = read_study(cells[0].parent.parent)
    assert "capability" in study_figures(study, analyse(study)).figures
    page = render(study, cells[0].parent / "report.html")
    assert f"{vanilla['low']:.3f} to {vanilla['high']:.3f}" in page


def test_bits_per_byte_are_a_ratio_over_the_same_passages(cells, random) -> None:
    bits = random.uniform(10, 40, size=12)
    write(cells[0], 0, "text", bits)
    write(cells[0], TASKS, "text", bits + 0.1 * (10 + np.arange(12)))  # 0.1 bits a byte, each
    row = table_of(cells, "text")["vanilla"]
    assert (row["change"], row["low"], row["high"]) == pytest.approx((0.1, 0.1, 0.1))
    assert row["value_low"] < row["value"] - 0.05 and row["value_high"] > row["value"] + 0.05


def test_the_languages_of_a_problem_are_drawn_together(cells, random) -> None:
    base = np.ones((40, 8), dtype=bool)
    alike = np.repeat(random.random((40, 1)) < 0.6, 8, axis=1)
    write(cells[0], 0, "mgsm", base)
    write(cells[0], TASKS, "mgsm", alike)
    write(cells[0], 0, "math", base.reshape(-1))
    write(cells[0], TASKS, "math", alike.reshape(-1))
    together, apart = (table_of(cells, suite)["vanilla"] for suite in ("mgsm", "math"))
    assert together["change"] == apart["change"]
    width = [row["high"] - row["low"] for row in (together, apart)]
    assert width[0] == pytest.approx(8**0.5 * width[1], rel=0.15)


def test_the_average_of_four_has_the_spread_of_a_mean(cells, random) -> None:
    for suite in ("gsm8k", "math", "mgsm", "mmlu_redux"):
        base = np.ones(ITEMS if suite != "mgsm" else (ITEMS, 1), dtype=bool)
        write(cells[0], 0, suite, base)
        write(cells[0], TASKS, suite, random.random(base.shape) < 0.5)
    average, single = (table_of(cells, suite)["vanilla"] for suite in ("average", "gsm8k"))
    assert average["drawn"] == "items"
    width = [row["high"] - row["low"] for row in (average, single)]
    assert width[0] == pytest.approx(width[1] / 2, rel=0.15)  # four independent suites


def test_without_samples_only_seeds_are_drawn(cells, random) -> None:
    base = random.random(ITEMS) < 0.5
    write(cells[0], 0, "gsm8k", base)
    for place, cell in enumerate(cells):
        write(cell, TASKS, "gsm8k", base & (np.arange(ITEMS) > 5 * (place + 1)))
        (boundary_directory(cell, TASKS) / "gsm8k.samples.jsonl").unlink()
    rows = table_of(cells, "gsm8k")
    assert rows["vanilla"]["drawn"] == "" and np.isnan(rows["vanilla"]["low"])
    merge = rows["merge"]
    changes = [(base & (np.arange(ITEMS) > 5 * n)).mean() - base.mean() for n in (2, 3)]
    assert merge["drawn"] == "seeds"
    assert (merge["low"], merge["high"]) == interval(np.array(changes)[:, None])


def test_samples_that_are_not_those_of_the_result_do_not_count(cells) -> None:
    right = np.arange(ITEMS) % 2 == 0
    write(cells[0], 0, "gsm8k", right)
    write(cells[0], TASKS, "gsm8k", right)
    file = boundary_directory(cells[0], TASKS) / "gsm8k.samples.jsonl"
    whole = file.read_text().splitlines(keepends=True)
    file.write_text("".join(whole[:-1]))
    assert table_of(cells, "gsm8k")["vanilla"]["drawn"] == ""
    file.write_text("".join([*whole[:-1], json.dumps({"id": 3}) + "\n"]))
    study = read_study(cells[0].parent.parent)
    assert f"samples.jsonl line {ITEMS}: is no sample" in analyse(study).absent["capability"]
