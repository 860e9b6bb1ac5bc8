"""The chain of matrices shows the seed it should, blank where nothing was run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from holdfast.analysis.study import Study
from holdfast.core.errors import HoldfastError
from holdfast.report.choice import CHAIN
from holdfast.report.figures import save
from holdfast.report.matrix_chain import matrix_chain, median_seeds
from holdfast.report.names import VERMILION
from holdfast.results import RecallMatrix, final
from tests.report.drawn import assert_readable
from tests.report.test_figures import fading

DATASETS = ("symbol_qa", "real_qa")


@pytest.fixture(scope="module")
def chain() -> dict[tuple[str, str], RecallMatrix]:
    made = {
        method: fading(30, kept)
        for method, kept in zip(CHAIN, (0.1, 0.5, 0.9, 0.98, 0.95), strict=True)
    }
    return {(dataset, method): made[method] for dataset in DATASETS for method in CHAIN}


def shown(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def outlined(axes) -> bool:
    return axes.spines["top"].get_visible() and axes.spines["top"].get_edgecolor()[:3] == (
        pytest.approx([int(VERMILION[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    )


def test_a_row_a_dataset_with_its_strongest_outlined(chain):
    figure = matrix_chain(chain)
    *panels, bar = figure.axes
    assert [axes.get_title() for axes in panels[:5]] == [
        "naive",
        "R",
        "R + M",
        "SI + R + M",
        "SI + SD + R + M",
    ]
    assert [axes.get_ylabel() for axes in panels[::5]] == [
        "Symbol-QA\nafter task",
        "Real-QA\nafter task",
    ]
    assert {axes.get_xlabel() for axes in panels[5:]} == {"on task"}
    assert bar.get_ylabel() == "accuracy"
    assert [outlined(axes) for axes in panels] == 2 * [False, False, False, True, False]
    for axes, method in zip(panels[:5], CHAIN, strict=True):
        expected = chain["symbol_qa", method].accuracies()[1:, 1:-1]
        expected[np.triu_indices(30, k=1)] = np.nan
        np.testing.assert_array_equal(axes.images[0].get_array().filled(np.nan), expected)
    assert_readable(figure)


def test_panels_are_square_and_the_figure_no_higher_than_they_need(chain):
    figure = matrix_chain({key: value for key, value in chain.items() if key[0] == "real_qa"})
    figure.draw_without_rendering()
    box = figure.axes[0].get_window_extent()
    assert box.width == pytest.approx(box.height, rel=0.01)
    assert figure.get_figheight() < 2 * box.height / figure.dpi
    assert_readable(figure)


def test_what_was_not_run_stays_blank_and_horizons_may_differ(chain):
    some = {
        key: matrix.up_to(10) if key[0] == "symbol_qa" else matrix
        for key, matrix in chain.items()
        if key not in {("symbol_qa", "replay"), ("real_qa", "vanilla")}
    }
    figure = matrix_chain(some, ["vanilla", "replay", "replay_merge"])
    panels = figure.axes[:-1]
    assert [place for place, axes in enumerate(panels) if shown(axes) == ["not run"]] == [1, 3]
    assert [list(panels[place].get_xticks()) for place in (0, 4)] == [[1, 5, 10], [1, 15, 30]]
    assert_readable(figure)


def test_only_columns_that_were_run(chain):
    figure = matrix_chain({("facts", "replay"): fading(3, 0.5)})
    panel, _ = figure.axes
    assert panel.get_title() == "R" and not outlined(panel)  # nothing to be stronger than
    assert list(panel.get_xticks()) == [1, 3]
    assert_readable(figure)
    with pytest.raises(HoldfastError, match="none of si"):
        matrix_chain(chain, ["si"])


def test_the_median_seed_and_the_lower_of_two():
    finals = {41: 0.9, 42: 0.5, 43: 0.7}
    matrices, rows = {}, []
    for method, seeds in (("replay", (41, 42, 43)), ("vanilla", (41, 42))):
        for seed in seeds:
            path = f"{method}/{seed}"
            matrices[path] = fading(4, finals[seed])
            row = {"dataset": "facts", "method": method, "candidate": method, "seed": seed}
            score = {"horizon": 4, "final": final(matrices[path]), "order_seed": pd.NA}
            rows.append({"study": "s", **row, **score, "path": path})
    cells = pd.DataFrame(rows).astype({"order_seed": "Int64"})
    chosen = median_seeds(Study(cells, matrices, {}, ()))
    assert chosen == {
        ("facts", "replay"): matrices["replay/43"],
        ("facts", "vanilla"): matrices["vanilla/42"],
    }


def test_equal_chains_are_equal_files(tmp_path):
    chain = {("facts", "vanilla"): fading(5, 0.5), ("facts", "replay"): fading(5, 0.9)}
    first, again = (save(matrix_chain(chain), tmp_path / name) for name in ("first", "again"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert b"/Subtype /Type0" in first[1].read_bytes()  # TrueType text, not outlines
