"""The heat maps show the numbers of the matrix, labelled, and leave blank what nobody observed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.axes import Axes

from holdfast.analysis.study import Study
from holdfast.core.errors import HoldfastError
from holdfast.report import plot_comparison, plot_matrices
from holdfast.report.figures import save
from holdfast.report.matrices import CHAIN, median_seeds
from holdfast.results import RecallMatrix
from tests.report.drawn import assert_readable
from tests.report.page_study import fading, study_of, together

RETENTION = dict(zip(CHAIN, (0.1, 0.5, 0.9, 0.98, 0.95), strict=True))


@pytest.fixture(scope="module")
def chain() -> Study:
    by_method = {method: fading(30, retention) for method, retention in RETENTION.items()}
    runs = {(method, 41): matrix for method, matrix in by_method.items()}
    return together(*(study_of(runs, dataset) for dataset in ("real_qa", "symbol_qa")))


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_text()]


def test_a_map_is_the_lower_triangle_and_blank_elsewhere():
    gaps = RecallMatrix().with_row(1, {1: (4, 4), 2: (1, 4)}).with_row(2, {1: (3, 4)})
    axes = plot_comparison({"costs $": gaps, "b": fading(6, 0.5)}).axes[0]
    first, second = (image.get_array().filled(np.nan) for image in axes.images)
    np.testing.assert_array_equal(first, [[1, np.nan], [0.75, np.nan]])
    expected = fading(6, 0.5).accuracies()[1:, 1:7]
    expected[np.triu_indices(6, k=1)] = np.nan
    np.testing.assert_array_equal(second, expected)
    # One size of cells: two of six in the first map, row 1 on top.
    assert axes.images[0].get_extent()[1] == pytest.approx(2 / 6)
    left, right, bottom, top = axes.images[1].get_extent()
    assert right - left == pytest.approx(1) and bottom - top == pytest.approx(1)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["1", "6"]
    assert r"costs \$" in texts(axes) and "after task" in texts(axes)


def test_cells_have_their_numbers_where_there_is_room():
    small = plot_comparison({"a": fading(3, 0.5)})
    assert sorted(texts(small.axes[0])[1:-1]) == sorted(["100", "100", "100", "50", "50", "25"])
    assert_readable(small)
    assert texts(plot_comparison({"a": fading(40, 0.5)}).axes[0]) == ["a", "after task"]


def test_four_in_a_row_and_as_high_as_needed():
    figure = plot_comparison({f"run {number}": fading(20, 0.9) for number in range(10)})
    left, _, _, top = zip(*(image.get_extent() for image in figure.axes[0].images), strict=True)
    assert len(set(top)) == 3 and len({round(x, 2) for x in left}) == 4
    assert_readable(figure)
    with pytest.raises(HoldfastError, match="empty"):
        plot_comparison({})


def test_a_row_a_dataset_with_its_strongest_outlined(chain):
    figure = plot_matrices(chain)
    axes = figure.axes[0]
    titles = ["naive", "R", "R + M", "SI + R + M", "SI + SD + R + M"]
    labels = ["Symbol-QA\nafter task", "Real-QA\nafter task"]
    assert texts(axes) == [*titles, labels[0], labels[1]]
    assert [patch.get_x() for patch in axes.patches] == [axes.images[3].get_extent()[0]] * 2
    for image, method in zip(axes.images, (*CHAIN, *CHAIN), strict=True):
        expected = fading(30, RETENTION[method]).accuracies()[1:, 1:31]
        expected[np.triu_indices(30, k=1)] = np.nan
        np.testing.assert_array_equal(image.get_array().filled(np.nan), expected)
    assert figure.axes[1].get_ylabel() == "accuracy"
    assert_readable(figure)
    box = axes.get_tightbbox()
    assert box.height > 0.85 * figure.bbox.height and box.width > 0.8 * figure.bbox.width


def test_what_was_not_run_is_said(chain):
    gone = (chain.cells["dataset"] == "symbol_qa") & (chain.cells["method"] == "replay")
    some = Study(chain.cells[~gone], chain.matrices, {}, ())
    figure = plot_matrices(some, ["vanilla", "replay", "replay_merge", "sd"])
    assert texts(figure.axes[0]).count("not run") == 1 and len(figure.axes[0].images) == 5
    assert_readable(figure)
    others = {(method, 1): fading(3, 0.5) for method in ("kfac_merge", "vanilla", "replay_merge")}
    assert len(plot_matrices(study_of(others)).axes[0].images) == 3  # not the paper's five
    alone = plot_matrices(study_of({("replay", 1): fading(3, 0.5)}, "facts"))
    assert not alone.axes[0].patches  # nothing to be stronger than
    with pytest.raises(HoldfastError, match="none of si has a Final; choose methods of the stu"):
        plot_matrices(chain, ["si"])


def test_a_sweep_has_its_naive_method_and_titles_that_can_be_read():
    shares = {"si_sd_replay_merge": 0.9, "merge": 0.8, "vanilla": 0.3}
    runs = {
        (f"{method} optim.lr={rate}", 1): fading(3, share)
        for method, share in shares.items()
        for rate in (0.0005, 0.001, 0.002)
    }
    figure = plot_matrices(study_of(runs))
    titles = [text for text in figure.axes[0].texts if "optim" in text.get_text()]
    names = [text.get_text() for text in titles]
    assert len(names) == 6 and "SI + SD + R + M\noptim.lr=0.0005" in names
    assert [name for name in names if name.startswith("naive")] == ["naive\noptim.lr=0.0005"]
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in titles]
    assert not any(box.overlaps(other) for box, other in itertools.combinations(boxes, 2))


def test_the_median_seed_and_the_lower_of_two():
    by_seed = {seed: fading(4, share) for seed, share in ((41, 0.9), (42, 0.5), (43, 0.7))}
    runs = [("replay", 41), ("replay", 42), ("replay", 43), ("vanilla", 41), ("vanilla", 42)]
    study = study_of({run: by_seed[run[1]] for run in runs}, "facts")
    chosen = median_seeds(study, ["replay", "vanilla"])
    assert chosen == {("facts", "replay"): by_seed[43], ("facts", "vanilla"): by_seed[42]}


def test_equal_figures_are_equal_files(tmp_path):
    first, again = (
        save(plot_comparison({"a": fading(5, 0.5)}), tmp_path / name) for name in ("v1.0", "again")
    )
    assert [path.name for path in first] == ["v1.0.png", "v1.0.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert b"/Subtype /Type0" in first[1].read_bytes()  # TrueType text, not outlines
    (tmp_path / "file").write_text("")
    with pytest.raises(HoldfastError, match="file"):
        save(plot_comparison({"a": fading(2, 0.5)}), tmp_path / "file" / "figure")
