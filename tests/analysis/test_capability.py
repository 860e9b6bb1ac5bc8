"""General capability beside recall, as trajectories recorded it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.analysis import analyse, read_study
from holdfast.report.figures import study_figures
from holdfast.report.page import render
from holdfast.results.capability import Score, boundary, text_score, write_result
from tests.analysis.synthetic import write_suite

TASKS = 4


def score(correct: int, items: int = 40) -> Score:
    return Score(items, items, items, 0, correct, {"": {"items": items, "correct": correct}})


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Two methods and seeds; GSM8K before and after, text after; one seed asked of everything."""
    place = write_suite(tmp_path / "suite", methods=("vanilla", "merge"), seeds=(1, 2), tasks=TASKS)
    for method, correct in (("vanilla", (4, 6)), ("merge", (20, 24))):
        for seed, right in zip((1, 2), correct, strict=True):
            (cell,) = (place / "cells").glob(f"{method}-{seed}-*")
            told = {"model": str(cell), "items": 40}
            write_result(boundary(cell, TASKS), "gsm8k", told, score(right))
    (first,) = (place / "cells").glob("vanilla-1-*")
    write_result(boundary(first, 0), "gsm8k", {"model": "none", "items": 40}, score(32))
    write_result(boundary(first, TASKS), "text", {"model": "x", "items": 9}, text_score(9, 2.5))
    return place


def test_the_change_is_against_the_unmodified_backbone(suite: Path) -> None:
    table = analyse(read_study(suite)).tables["capability"]
    asked = table[table["suite"] == "gsm8k"].set_index("method")
    assert asked.at["vanilla", "value"] == pytest.approx(5 / 40)
    assert asked.at["vanilla", "value_sd"] == pytest.approx(2**0.5 / 40)
    assert asked.at["merge", "change"] == pytest.approx(22 / 40 - 32 / 40)
    assert set(asked["before"]) == {0.8}
    (text,) = table[table["suite"] == "text"].to_dict("records")
    assert (text["unit"], text["value"], text["seeds"]) == ("bits per byte", 2.5, 1)
    assert text["before"] != text["before"]  # nobody measured it


def test_seeds_that_were_asked_differently_are_refused(suite: Path) -> None:
    (cell,) = (suite / "cells").glob("merge-2-*")
    write_result(boundary(cell, TASKS), "gsm8k", {"model": "m", "items": 10}, score(5, 10))
    analysis = analyse(read_study(suite))
    assert "gsm8k was not asked alike" in analysis.absent["capability"]
    assert "gsm8k was not asked alike" in render(read_study(suite), suite / "report.html")


def test_the_four_benchmarks_have_an_unweighted_average_by_seed(suite: Path) -> None:
    four = ("gsm8k", "math", "mgsm", "mmlu_redux")
    for seed, correct in ((1, (6, 2, 0, 10)), (2, (8, 4, 2, 20))):
        (cell,) = (suite / "cells").glob(f"merge-{seed}-*")
        for name, right in zip(four, correct, strict=True):
            items = 10 if name == "math" else 40  # the mean is of shares, not of items
            told = {"model": str(cell), "items": items}
            write_result(boundary(cell, TASKS), name, told, score(right, items))
            write_result(boundary(cell, 0), name, told, score(items // 2, items))
    table = analyse(read_study(suite)).tables["capability"]
    (average,) = table[table["suite"] == "average"].to_dict("records")  # vanilla lacks three
    shares = (6 / 40 + 2 / 10 + 0 + 10 / 40) / 4, (8 / 40 + 4 / 10 + 2 / 40 + 20 / 40) / 4
    assert (average["method"], average["seeds"], average["items"]) == ("merge", 2, 130)
    assert average["value"] == pytest.approx(sum(shares) / 2)
    assert average["value_sd"] == pytest.approx((shares[1] - shares[0]) / 2**0.5)
    assert average["change"] == pytest.approx(sum(shares) / 2 - 0.5)


def test_the_page_and_the_figures_show_it(suite: Path) -> None:
    study = read_study(suite)
    page = render(study, suite / "report.html")
    assert "General capability" in page
    assert "<td>-0.250</td>" in page
    drawn = study_figures(study, analyse(study)).figures["capability"]
    assert {text.get_text() for text in drawn.legends[0].get_texts()} == {"gsm8k", "base model"}
