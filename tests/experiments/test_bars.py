"""The bar figures show each number once, at its place, and say what is not there."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from experiments.paper.analysis.factorial import compositions
from experiments.paper.figures.bar_labels import ALLOCATION_COLOURS
from experiments.paper.figures.build_up_path import plot_build_up
from experiments.paper.figures.composition_grid import plot_compositions
from experiments.paper.figures.search_bars import plot_search
from holdfast.core.errors import HoldfastError
from tests.report.drawn import assert_readable

DATASETS = ("symbol_qa", "llm_qa", "real_qa")


def bars(axes: Axes) -> dict[float, float]:
    """Middle of a vertical bar -> its height."""
    return {round(bar.get_x() + bar.get_width() / 2, 6): bar.get_height() for bar in axes.patches}


def numbers(axes: Axes) -> list[str]:
    return [text.get_text().strip() for text in axes.texts]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def dots(axes: Axes) -> tuple[set[tuple[float, float]], set[tuple[float, float]]]:
    """Where the open and the filled dots are."""
    open_, filled = (set(zip(*line.get_data(), strict=True)) for line in axes.lines)
    return open_, filled


def factorial() -> pd.DataFrame:
    """Sixteen compositions on three datasets, each with a number of its own."""
    return pd.DataFrame(
        {
            "dataset": dataset,
            "method": method,
            "horizon": 100,
            "final": 0.01 + (0.03 + 0.005 * place) * sum(present),
            "final_sd": 0.01 * sum(present),
        }
        for place, dataset in enumerate(DATASETS)
        for method, present in compositions().items()
    )


def test_the_grid_has_each_composition_under_its_number():
    table = factorial()
    figure = plot_compositions(table)
    *panels, bottom = figure.axes
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["Symbol-QA, 100 tasks", "LLM-QA, 100 tasks", "Real-QA, 100 tasks"]
    assert [text.get_text() for text in bottom.get_yticklabels()] == ["SI", "SD", "R", "M"]
    open_, filled = dots(bottom)
    assert len(open_) == len(filled) == 32 and not open_ & filled
    columns = compositions()
    for dataset, axes in zip(DATASETS, panels, strict=True):
        drawn = bars(axes)
        finals = table[table["dataset"] == dataset].set_index("method")["final"]
        assert len(drawn) == 16
        for method, present in columns.items():
            (place,) = [
                column
                for column in range(16)
                if tuple((column, row) in filled for row in range(4)) == present
            ]
            assert drawn[place] == finals[method]
        (bold,) = [text for text in axes.texts if text.get_weight() == "bold"]
        assert bold.get_position() is not None and bold.xy[0] == 15
    # Shared LoRA on the left, merged on the right, and nothing at all first.
    assert all((column, 3) in filled for column in range(8, 16))
    assert all((0, row) in open_ for row in range(4))
    assert legend(figure) == ["shared LoRA", "merged LoRA"]
    assert_readable(figure)


def test_the_best_are_bold_also_where_only_rounding_tells_them_apart():
    table = factorial()[:3].assign(final=[0.1, 0.1 + 0.2, 0.3])
    panel, _ = plot_compositions(table).axes
    assert numbers(panel) == ["10.0", "30.0", "30.0"]
    assert [text.get_weight() for text in panel.texts] == ["normal", "bold", "bold"]


def test_the_build_up_path_names_its_steps_and_marks_the_strongest():
    steps = {
        "step": range(5),
        "added": ["", "replay", "merge", "si", "sd"],
        "method": ["vanilla", "replay", "replay_merge", "si_replay_merge", "x"],
        "final": [0.013, 0.125, 0.482, 0.548, 0.443],
        "final_sd": [0.002, 0.014, 0.028, 0.104, math.nan],
        "strongest": [False, False, False, True, False],
    }
    path = pd.concat([pd.DataFrame({"dataset": dataset, **steps}) for dataset in DATASETS])
    figure = plot_build_up(path)
    assert len(figure.axes) == 3
    for axes in figure.axes:
        ticks = [text.get_text() for text in axes.get_xticklabels()]
        assert ticks == ["naive", "+ R", "+ M", "+ SI", "+ SD"]
        assert numbers(axes) == ["1.3", "12.5", "48.2", "54.8", "44.3"]
        (triangle,) = [line for line in axes.lines if line.get_marker() == "^"]
        assert (list(triangle.get_xdata()), list(triangle.get_ydata())) == ([3], [0.548])
    assert_readable(figure)


def test_no_number_of_the_build_up_path_lies_on_its_triangle_or_the_axis():
    path = pd.DataFrame(
        {
            "dataset": "symbol_qa",
            "step": range(5),
            "added": ["", "replay", "merge", "sd", "si"],
            "method": ["vanilla", "replay", "replay_merge", "sd_replay_merge", "x"],
            "final": [0.317, 0.65, 0.847, 0.92, 0.923],
            "final_sd": 0.0,
            "strongest": [False, False, False, False, True],
        }
    )
    figure = plot_build_up(pd.concat([path.assign(dataset=name) for name in DATASETS]))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    first, *_, last = (text.get_window_extent() for text in axes.texts)
    (triangle,) = [line for line in axes.lines if line.get_marker() == "^"]
    apex = axes.transData.transform((4, 0.923))[1] + triangle.get_markersize() / 2 * figure.dpi / 72
    assert last.y0 > apex
    assert first.x0 > axes.bbox.x0 + 2


def test_search_bars_show_who_is_left_where():
    bars_of = {  # by method, at 10, 20 and 50 tasks: the percentile and how many data sets
        "si_replay_merge": [(0.9, 3), (1.0, 3), (math.nan, 1)],
        "replay_merge": [(1.0, 3), (0.5, 2), (math.nan, 0)],
        "sd": [(0.5, 3), (math.nan, 0), (math.nan, 0)],
        "vanilla": [(0.0, 3), (math.nan, 0), (math.nan, 0)],
    }
    rows = [
        (horizon, method, *bar)
        for method, each in bars_of.items()
        for horizon, bar in zip((10, 20, 50), each, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["horizon", "method", "percentile", "datasets"])
    figure = plot_search(table)
    composition, ten, twenty, fifty = figure.axes
    titles = [axes.get_title() for axes in (ten, twenty, fifty)]
    assert titles == [f"after {horizon} tasks" for horizon in (10, 20, 50)]
    # Ranked by the last horizon where they differ, then by the one before.
    assert numbers(ten) == ["90", "100", "50", "0"]
    assert numbers(twenty) == ["100", "50  2/3"]
    assert numbers(fifty) == ["alone  1/3"]
    _, filled = dots(composition)
    assert filled == {(0, 0), (2, 0), (3, 0), (2, 1), (3, 1), (1, 2)}  # (mechanism, row)
    lengths = [bar.get_width() for bar in twenty.patches[:2]]
    assert lengths == [1.0, 0.5]
    assert twenty.patches[0].get_facecolor() == to_rgba(ALLOCATION_COLOURS["merge"])
    assert len(twenty.patches) == 4  # two are grey rows
    rules = ["shared LoRA", "merged LoRA"]
    assert legend(figure) == [*rules, "out of the search", "n/3: still on n of 3"]
    assert_readable(figure)


@pytest.mark.parametrize("draw", [plot_compositions, plot_build_up, plot_search])
def test_an_empty_table_is_refused(draw):
    with pytest.raises(HoldfastError, match="empty"):
        draw(pd.DataFrame())
