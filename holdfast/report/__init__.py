"""Figures and pages of finished results: functions that take the library's tables and objects.

Each ``plot_`` function returns a ``matplotlib.figure.Figure`` and does not use pyplot: a notebook
shows it as the last value of a cell, ``savefig`` writes it. Never imports torch.
"""

from holdfast.report.bars import plot_capability, plot_evaluation, plot_samples
from holdfast.report.curves import plot_item_groups, plot_survival
from holdfast.report.matrices import plot_comparison, plot_matrices, plot_noise
from holdfast.report.pages import write_page

__all__ = [
    "plot_capability",
    "plot_comparison",
    "plot_evaluation",
    "plot_item_groups",
    "plot_matrices",
    "plot_noise",
    "plot_samples",
    "plot_survival",
    "write_page",
]
