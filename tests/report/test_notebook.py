"""What a notebook shows of a figure."""

from __future__ import annotations

import io

import numpy as np
from IPython.core.formatters import DisplayFormatter
from matplotlib.image import imread

from holdfast.report import plot_comparison
from tests.report.page_study import fading


def test_a_notebook_shows_a_drawing() -> None:
    figure = plot_comparison({"a": fading(5, 0.5)})
    formats, _ = DisplayFormatter().format(figure)
    height, width, _ = imread(io.BytesIO(formats["image/png"]), format="png").shape
    # Constrained layouts may still crop a figure by a pixel.
    np.testing.assert_allclose((width, height), 130 * figure.get_size_inches(), atol=2)
