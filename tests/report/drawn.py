"""What holds for every figure of a paper, measured on the drawn text."""

from __future__ import annotations

from itertools import combinations

from matplotlib.axis import Tick
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from holdfast.report.style import Drawing

LEAST_POINTS = 6.5


def assert_readable(figure: Figure) -> None:
    """Shown by notebooks; no text too small, none cut off, no two texts over each other."""
    assert isinstance(figure, Drawing)
    figure.draw_without_rendering()
    assert 2 < figure.get_figwidth() <= 6.9
    hidden = _labels_beyond_the_limits(figure)
    texts = [
        (text.get_text(), text.get_window_extent())
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in hidden
    ]
    small = [
        text.get_text()
        for text in figure.findobj(Text)
        if text.get_text().strip() and text.get_fontsize() < LEAST_POINTS
    ]
    assert not small, small
    whole = figure.bbox.padded(1)
    outside = [name for name, box in texts if not _within(box, whole)]
    assert not outside, outside
    overlapping = [
        (name, other)
        for (name, box), (other, other_box) in combinations(texts, 2)
        if _area(Bbox.intersection(box, other_box)) > 0.1 * min(_area(box), _area(other_box))
    ]
    assert not overlapping, overlapping


def _labels_beyond_the_limits(figure: Figure) -> set[Text]:
    """Labels of ticks outside an axis, which are there and never drawn."""
    return {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.findobj(Tick)
        for label in (tick.label1, tick.label2)
        if not min(limits := axis.get_view_interval()) <= tick.get_loc() <= max(limits)
    }


def _within(box: Bbox, whole: Bbox) -> bool:
    return box.x0 >= whole.x0 and box.y0 >= whole.y0 and box.x1 <= whole.x1 and box.y1 <= whole.y1


def _area(box: Bbox | None) -> float:
    return 0.0 if box is None else box.width * box.height
