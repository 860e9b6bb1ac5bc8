"""The figures show the numbers of the matrix, labelled, and leave blank what nobody observed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from holdfast.core.errors import HoldfastError
from holdfast.report.figures import plot_comparison, save
from holdfast.results import RecallMatrix, retention_by_age

ITEMS = 32


def fading(tasks: int, kept: float, skipped: tuple[int, ...] = ()) -> RecallMatrix:
    """A matrix in which each further task leaves a share of what was known."""
    matrix = RecallMatrix()
    for after_task in range(tasks + 1):
        if after_task in skipped:
            continue
        row = {
            task: round(ITEMS * kept ** (after_task - task)) for task in range(1, after_task + 1)
        }
        row[after_task + 1] = 3  # forward transfer, which is no memory
        matrix = matrix.with_row(after_task, {task: (n, ITEMS) for task, n in row.items()})
    return matrix


@pytest.fixture
def pair() -> dict[str, RecallMatrix]:
    return {"vanilla": fading(6, 0.3), "sd_merge": fading(6, 0.9, skipped=(4,))}


def parts(figure: Figure) -> tuple[Axes, list[Axes], Axes]:
    """The curves, the matrices, the colour bar."""
    curves, *matrices, bar = figure.axes
    return curves, matrices, bar


def test_the_curves_are_the_retention_by_age(pair):
    curves, _, _ = parts(plot_comparison(pair))
    assert [line.get_label() for line in curves.lines] == list(pair)
    for line, matrix in zip(curves.lines, pair.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(6))
        np.testing.assert_array_equal(line.get_ydata(), retention_by_age(matrix))


def test_each_matrix_is_its_lower_triangle_and_blank_elsewhere(pair):
    figure = plot_comparison(pair)
    figure.draw_without_rendering()
    _, drawn, bar = parts(figure)
    assert [axes.get_title() for axes in drawn] == list(pair)
    assert bar.get_ylabel() == "accuracy"
    for axes, matrix in zip(drawn, pair.values(), strict=True):
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("on task", "after task")
        shown = axes.images[0].get_array().filled(np.nan)
        expected = matrix.accuracies()[1:, 1:-1]
        expected[np.triu_indices(6, k=1)] = np.nan
        np.testing.assert_array_equal(shown, expected)
        # Row 1 on top; each cell is centred on the number of its task.
        assert axes.images[0].get_extent() == [0.5, 6.5, 6.5, 0.5]
        ticks = [*axes.get_xticks(), *axes.get_yticks()]
        assert all(float(tick).is_integer() for tick in ticks)


def test_small_matrices_carry_their_numbers_and_large_ones_do_not():
    _, (small,), _ = parts(plot_comparison({"a": fading(3, 0.5)}))
    # text.get_position() is (on task, after task)
    numbers = {text.get_position(): text.get_text() for text in small.texts}
    assert numbers == {(1, 1): "100", (1, 2): "50", (2, 2): "100"} | {
        (1, 3): "25",
        (2, 3): "50",
        (3, 3): "100",
    }
    _, (large,), _ = parts(plot_comparison({"a": fading(40, 0.5)}))
    assert len(large.texts) == 0


def test_every_trajectory_has_a_curve_of_its_own_look():
    many = {f"method {number}": fading(2, 0.5) for number in range(20)}
    curves, matrices, _ = parts(plot_comparison(many))
    assert len(matrices) == 20
    looks = {(line.get_color(), line.get_marker()) for line in curves.lines}
    assert len(looks) == 20


@pytest.mark.parametrize("tasks", [0, 1])
def test_short_trajectories_can_be_drawn(tasks, tmp_path):
    matrix = fading(tasks, 0.5) if tasks else RecallMatrix()
    assert all(path.stat().st_size for path in save(plot_comparison({"a": matrix}), tmp_path / "a"))


def test_equal_figures_are_equal_files(pair, tmp_path):
    first = save(plot_comparison(pair), tmp_path / "v1.0")
    second = save(plot_comparison(pair), tmp_path / "again")
    assert [path.name for path in first] == ["v1.0.png", "v1.0.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert first[1].read_bytes().startswith(b"%PDF")


def test_an_unwritable_place_is_the_callers_mistake(pair, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HoldfastError, match="file"):
        save(plot_comparison(pair), tmp_path / "file" / "figure")


def test_figures_need_no_torch():
    check = "import sys, holdfast.report.figures; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)
