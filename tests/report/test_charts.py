"""Bars and curves: each number once, at its place; one name and one look a method everywhere."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.image import imread

from experiments.paper.analysis.factorial import compositions
from holdfast.core.errors import HoldfastError
from holdfast.report import plot_capability, plot_comparison, plot_evaluation, plot_survival
from holdfast.report.curves import plot_item_groups
from holdfast.report.figures import shown_methods
from holdfast.report.names import dataset_name, datasets_in_order, looks, mechanisms, method_name
from tests.report.drawn import assert_readable
from tests.report.page_study import fading


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


def bands(lives: dict[tuple[str, str], float], ages: int = 100) -> pd.DataFrame:
    """Curves that have halved after so many tasks; (dataset, method) -> tasks."""
    parts = []
    for (dataset, method), life in lives.items():
        age = np.arange(ages)
        mean = 0.98 * 2.0 ** (-age / (life - 0.01))
        curve = {"age": age, "mean": mean, "lowest": 0.9 * mean, "highest": 1.02 * mean}
        parts.append(pd.DataFrame({"dataset": dataset, "method": method, **curve}))
    return pd.concat(parts, ignore_index=True)


METHODS = ("vanilla", "replay", "sd_replay_merge", "si_sd_replay_merge")
LIVES = {
    (dataset, method): life
    for dataset in ("real_qa", "symbol_qa", "llm_qa")
    for method, life in zip(METHODS, (1, 6, 19, 32), strict=True)
}


def legend(axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_each_curve_its_band_and_its_half_life():
    table = bands({("llm_qa", "replay"): 4, ("llm_qa", "replay_merge"): 19})
    (axes,) = plot_survival(table).axes
    assert legend(axes) == ["R: 4", "R + M: 19"]
    for place, (method, life) in enumerate((("replay", 4), ("replay_merge", 19))):
        rows = table[table["method"] == method]
        curve, down, ring = axes.lines[3 * place : 3 * place + 3]
        look = looks([method])[method]
        assert (curve.get_color(), curve.get_linestyle()) == (look.colour, look.line)
        np.testing.assert_array_equal(curve.get_ydata(), rows["mean"])
        assert list(down.get_xdata()) == [life, life]
        assert list(ring.get_xdata()) == [life]
        assert list(ring.get_ydata()) == list(rows["mean"].iloc[[life]])
    for band, (_, rows) in zip(axes.collections, table.groupby("method"), strict=True):
        heights = band.get_paths()[0].vertices[:, 1]
        assert heights.min() == rows["lowest"].min()
        assert heights.max() == rows["highest"].max()


def test_a_curve_that_does_not_fall_so_far_says_so_and_one_not_observed_does_too():
    lives = {("llm_qa", method): 500 for method in ("replay", "sd", "merge")}
    table, numbers = bands(lives, ages=10), ["mean", "lowest", "highest"]
    table.loc[(table["method"] == "sd") & (table["age"] == 4), numbers] = None
    table.loc[table["method"] == "merge", numbers] = 0.0
    (axes,) = plot_survival(table).axes
    assert legend(axes) == ["R: >9", "SD: not known", "M: nothing learned"]
    assert len(axes.lines) == 3  # no mark


def test_a_panel_a_dataset_in_the_papers_order_readable():
    figure = plot_survival(bands(LIVES))
    assert [axes.get_title() for axes in figure.axes] == ["Symbol-QA", "LLM-QA", "Real-QA"]
    assert_readable(figure)
    assert figure.get_figwidth() == 6.9


def test_chosen_methods_in_the_order_given_where_a_dataset_has_them():
    table = bands({("llm_qa", "sd"): 2, ("llm_qa", "replay"): 4, ("facts", "replay"): 3})
    llm, facts = plot_survival(table, ["replay", "sd"]).axes
    assert legend(llm) == ["R: 4", "SD: 2"]
    assert legend(facts) == ["R: 3"]


def test_what_cannot_be_drawn_is_named():
    table = bands({("llm_qa", "replay"): 4})
    with pytest.raises(HoldfastError, match="no curve of sd, si; choose from replay"):
        plot_survival(table, ["si", "replay", "sd"])
    with pytest.raises(HoldfastError, match="empty"):
        plot_survival(table.iloc[:0])


def test_of_several_data_sets_each_shows_its_own_strongest():
    ranked = {
        "symbol_qa": ["sd_replay_merge", "si_merge", "merge", "replay", "vanilla"],
        "llm_qa": ["si_replay_merge", "sd_replay_merge", "replay", "merge", "vanilla", "osrm"],
    }
    pairs = [(dataset, method) for dataset, methods in ranked.items() for method in methods]
    table = pd.DataFrame(pairs, columns=["dataset", "method"])
    shown = shown_methods(table.sample(frac=1, random_state=0), table)
    assert shown.groupby("dataset")["method"].agg(set).to_dict() == {
        "symbol_qa": {"merge", "sd_replay_merge", "vanilla"},  # a rule alone is a mechanism
        "llm_qa": {"replay", "si_replay_merge", "vanilla"},
    }
    alone = table[table["dataset"] == "llm_qa"]
    more = pd.concat([alone, alone.assign(method=["si", "sd", *"abcd"])])
    assert len(shown_methods(more, more)) == 6  # as many as a reader can distinguish


@pytest.mark.parametrize(
    ("method", "anchors", "rule", "name"),
    [
        ("vanilla", (), "shared", "naive"),
        ("si", ("si",), "shared", "SI"),
        ("merge", (), "merge", "M"),
        ("si_sd_replay_merge", ("si", "sd", "replay"), "merge", "SI + SD + R + M"),
        ("si_replay_olora", ("si", "replay"), "olora", "SI + R + O-LoRA"),
        ("online_ewc_replay_osrm", ("online_ewc", "replay"), "osrm", "EWC + R + OSRM"),
        ("sd_my_anchor_merge", ("sd", "my_anchor"), "merge", "SD + my_anchor + M"),
        ("merge stream.name=a=b d=1", (), "merge", "M, stream.name=a=b, d=1"),
        ('merge a.b="x y=1" c=["u v",2] d=1', (), "merge", 'M, a.b="x y=1", c=["u v",2], d=1'),
    ],
)
def test_a_tag_is_read_and_named(method, anchors, rule, name):
    assert mechanisms(method) == (anchors, rule)
    assert method_name(method) == name


def test_the_papers_methods_look_different_and_always_the_same():
    methods = [*compositions(), "online_ewc", "olora", "osrm", "si_replay_olora", "si_replay_osrm"]
    together = looks(methods)
    assert len(set(together.values())) == len(methods) == 21
    assert all(looks([method])[method] == look for method, look in together.items())


def test_settings_look_the_same_in_whatever_order_they_come():
    methods = ["merge lr=1", "vanilla lr=2", "merge lr=2", "vanilla lr=1"]
    assert looks(methods) == looks(methods[::-1])
    assert list(looks(methods)) == methods


def test_a_method_of_another_package_takes_no_look_of_one_beside_it():
    styles = looks(["vanilla", "my_anchor", "your_anchor", "si"])
    assert len(set(styles.values())) == 4
    assert styles["si"] == looks(["si"])["si"]


def test_the_papers_datasets_come_first_and_in_its_order():
    datasets = ["zoo", "real_qa", "facts", "symbol_qa", "real_qa", "llm_qa"]
    assert datasets_in_order(datasets) == ["symbol_qa", "llm_qa", "real_qa", "facts", "zoo"]


def test_a_dataset_keeps_its_own_name_which_is_no_formula_and_not_endless():
    assert dataset_name("facts") == "facts"
    assert dataset_name("cost_in_$") == r"cost_in_\$"
    assert method_name("sd_$my$_anchor") == r"SD + \$my\$_anchor"
    assert len(dataset_name("a" * 50)) == 20


def test_a_notebook_shows_a_drawing() -> None:
    figure = plot_comparison({"a": fading(5, 0.5)})
    formats, _ = DisplayFormatter().format(figure)
    height, width, _ = imread(io.BytesIO(formats["image/png"]), format="png").shape
    # Constrained layouts may still crop a figure by a pixel.
    np.testing.assert_allclose((width, height), 130 * figure.get_size_inches(), atol=2)


def test_the_ages_of_many_tasks_can_be_read() -> None:
    ages = ["0", "1", "2-3", "4-7", "8-15", "16-31", "32-63", "64-127", "128-255", "256-499"]
    groups = {"age": ages, "length": ["23-34", "35-41", "42-77"], "rehearsed": ages}
    rows = [(by, group) for by, names in groups.items() for group in names]
    table = pd.DataFrame(rows, columns=["by", "group"])
    assert_readable(plot_item_groups(table.assign(dataset="facts", method="replay", recalled=0.5)))
