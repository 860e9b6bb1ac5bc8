"""Bars: each number once, at its place, and a dash or a gap for what is not there."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.report import plot_capability, plot_evaluation
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
    right, wrong = figure.axes
    assert [text.get_text() for text in right.get_yticklabels()] == [
        "taught wordings (200)",
        "other wordings (400)",
        "everyday questions kept (126)",
    ]
    assert [bar.get_width() for bar in right.patches] == [1, 0.985, 1, 0.912, 0.8, 0.915, 1, 0, 1]
    assert [text.get_text() for text in right.texts] == [
        "100", "98.5", "100", "91.2", "80.0", "91.5", "100", "–", "100",
    ]  # fmt: skip
    assert [text.get_text() for text in wrong.get_yticklabels()] == ["everyday questions (240)"]
    assert [text.get_text() for text in wrong.texts] == ["0", "–", "0"]
    first, second = right.patches[:2]
    assert first.get_y() + first.get_height() <= second.get_y()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "memory as it answers", "weights alone", "list alone",
    ]  # fmt: skip
    assert_readable(figure)

    assert len(plot_evaluation({"rows": {"recalled": ROWS["recalled"]}}).axes) == 1
    with pytest.raises(HoldfastError, match="evaluation: the table is empty"):
        plot_evaluation({"rows": {"seconds": ROWS["seconds"]}})


def test_capability_bars_stand_below_the_line_of_their_suite():
    base = {"gsm8k": 0.836, "math": 0.576, "mgsm": None}
    rows = [
        ("llm_qa", method, suite, "share", 4, base[suite], 0.1 * place + 0.05 * column)
        for place, method in enumerate(("vanilla", "si_replay_olora"))
        for column, suite in enumerate(base)
        if (place, suite) != (1, "mgsm")
    ]
    rows += [("llm_qa", "vanilla", "gsm8k", "share", 2, 0.836, 0.9)]  # not after the last task
    rows += [("llm_qa", "vanilla", "text", "bits per byte", 4, 1.0, 2.0)]
    names = ["dataset", "method", "suite", "unit", "after_task", "before", "value"]
    figure = plot_capability(pd.DataFrame(rows, columns=names))
    (axes,) = figure.axes
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert labels == ["naive", "SI + R + O-LoRA"]
    middles = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
    assert middles == pytest.approx([-0.28, 0, 0.28, 0.72, 1])
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx([0, 0.05, 0.1, 0.1, 0.15])
    assert sorted(line.get_ydata()[0] for line in axes.lines) == [0.576, 0.576, 0.836, 0.836]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "gsm8k", "math", "mgsm", "base model",
    ]  # fmt: skip
    assert_readable(figure)
    with pytest.raises(HoldfastError, match="no suite with right answers was measured"):
        plot_capability(pd.DataFrame(rows[-1:], columns=names))
    with pytest.raises(HoldfastError, match="empty"):
        plot_capability(pd.DataFrame([], columns=names))
