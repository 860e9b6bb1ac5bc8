"""Curves show the means, the seeds between lowest and highest, and the half-lives."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.report import plot_survival
from holdfast.report.figures import shown_methods
from holdfast.report.names import looks
from tests.report.drawn import assert_readable


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
