"""The picture of an evaluation: each number once, at its bar, and a dash for what is not there."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.report.evaluation_bars import plot_evaluation
from tests.report.drawn import assert_readable


def row(of: int, memory: float | None, weights: float | None, listed: float | None) -> Any:
    return {"of": of, "memory": memory, "weights": weights, "list": listed}


ROWS = {
    "recalled": row(200, 1.0, 0.985, 1.0),
    "wordings": row(400, 0.912, 0.8, 0.915),
    "everyday_kept": row(126, 1.0, None, 1.0),
    "everyday_taught_answer": row(240, 0.0, None, 0.0),
    "others_taught_answer": row(0, None, None, None),
    "seconds": row(20, 0.2, 0.1, 0.1),
}


def test_each_measure_has_its_bars_and_numbers():
    figure = plot_evaluation({"rows": ROWS})
    known, wrong = figure.axes
    assert [text.get_text() for text in known.get_yticklabels()] == [
        "taught wordings (200)",
        "other wordings (400)",
        "everyday questions kept (126)",
    ]
    assert [bar.get_width() for bar in known.patches] == [1, 0.985, 1, 0.912, 0.8, 0.915, 1, 0, 1]
    assert [text.get_text() for text in known.texts] == [
        "100", "98.5", "100", "91.2", "80.0", "91.5", "100", "–", "100",
    ]  # fmt: skip
    assert [text.get_text() for text in wrong.get_yticklabels()] == ["everyday questions (240)"]
    assert [text.get_text() for text in wrong.texts] == ["0", "–", "0"]
    first, second = known.patches[:2]
    assert first.get_y() + first.get_height() <= second.get_y()
    (legend,) = figure.legends
    assert [one.get_text() for one in legend.get_texts()] == [
        "memory as it answers", "weights alone", "list alone",
    ]  # fmt: skip
    assert_readable(figure)


def test_one_panel_is_drawn_alone():
    assert len(plot_evaluation({"rows": {"recalled": ROWS["recalled"]}}).axes) == 1


def test_nothing_to_draw():
    with pytest.raises(HoldfastError, match="evaluation: the table is empty"):
        plot_evaluation({"rows": {"seconds": ROWS["seconds"]}})
