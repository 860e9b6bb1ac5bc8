"""The figures as functions: what a notebook calls, and what it shows."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure
from matplotlib.image import imread

from holdfast import report
from holdfast.analysis import Items, analyse, read_study, rehearsed_tasks, sampled
from holdfast.analysis.items import rehearsed_ages
from holdfast.report.style import Drawing
from holdfast.streams import Template, symbol_qa
from tests.analysis.synthetic import write_suite
from tests.report.test_bars import ROWS


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], Figure]]:
    """A call of every function, by its name."""
    place = tmp_path_factory.mktemp("study")
    write_suite(place / "suite", seeds=(41, 42), tasks=5)
    study = read_study(str(place / "suite"))
    tables = analyse(study).tables
    matrices = dict(list(study.matrices.items())[:2])
    stream = symbol_qa(tasks=3, items=4)
    template = Template()
    text = template.text(stream.tasks[0].items[0])
    items = Items(stream, template, 3, {}, {2: [text, "something else"], 3: [text]})
    of_run = {"dataset": "symbol_qa", "method": "replay"}
    suite = {"suite": "gsm8k", "unit": "share", "after_task": 4, "before": 0.5, "value": 0.2}
    groups = pd.DataFrame([{**of_run, "by": "age", "group": "0", "recalled": 0.5}])
    kinds = sampled(items).assign(**of_run)
    ages = rehearsed_ages(rehearsed_tasks(items)).assign(**of_run)
    return {
        "plot_capability": lambda: report.plot_capability(pd.DataFrame([of_run | suite])),
        "plot_comparison": lambda: report.plot_comparison(matrices),
        "plot_evaluation": lambda: report.plot_evaluation({"rows": ROWS}),
        "plot_item_groups": lambda: report.plot_item_groups(groups),
        "plot_matrices": lambda: report.plot_matrices(study),
        "plot_noise": lambda: report.plot_noise(tables["differences"]),
        "plot_samples": lambda: report.plot_samples(kinds, ages),
        "plot_survival": lambda: report.plot_survival(tables["survival"]),
    }


@pytest.mark.parametrize("name", [name for name in report.__all__ if name.startswith("plot_")])
def test_every_figure_is_a_drawing(drawn: dict[str, Callable[[], Figure]], name: str) -> None:
    assert isinstance(drawn[name](), Drawing)


def test_a_notebook_shows_a_drawing(drawn: dict[str, Callable[[], Figure]]) -> None:
    figure = drawn["plot_survival"]()
    formats, _ = DisplayFormatter().format(figure)
    height, width, _ = imread(io.BytesIO(formats["image/png"]), format="png").shape
    inches = figure.get_size_inches()
    # Constrained layouts may still crop a figure by a pixel.
    np.testing.assert_allclose((width, height), 130 * inches, atol=2)
