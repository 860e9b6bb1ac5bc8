"""Figures and pages of finished results: functions that take the library's tables and objects.

Each ``plot_`` function returns a ``matplotlib.figure.Figure`` and leaves pyplot alone: a notebook
shows it where it stands last in a cell, ``savefig`` writes it. Never imports torch; matplotlib is
loaded when a figure is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.report.build_up_path import plot_build_up as plot_build_up
    from holdfast.report.capability_bars import plot_capability as plot_capability
    from holdfast.report.composition_grid import plot_compositions as plot_compositions
    from holdfast.report.evaluation_bars import plot_evaluation as plot_evaluation
    from holdfast.report.figures import plot_comparison as plot_comparison
    from holdfast.report.figures import plot_matrix as plot_matrix
    from holdfast.report.item_groups import plot_item_groups as plot_item_groups
    from holdfast.report.matrix_chain import plot_matrices as plot_matrices
    from holdfast.report.noise_grid import plot_noise as plot_noise
    from holdfast.report.page import write_page as write_page
    from holdfast.report.samples import plot_samples as plot_samples
    from holdfast.report.samples import plot_samples_by_method as plot_samples_by_method
    from holdfast.report.search_bars import plot_search as plot_search
    from holdfast.report.survival import plot_survival as plot_survival

_HOMES = {
    "plot_build_up": "build_up_path",
    "plot_capability": "capability_bars",
    "plot_comparison": "figures",
    "plot_compositions": "composition_grid",
    "plot_evaluation": "evaluation_bars",
    "plot_item_groups": "item_groups",
    "plot_matrices": "matrix_chain",
    "plot_matrix": "figures",
    "plot_noise": "noise_grid",
    "plot_samples": "samples",
    "plot_samples_by_method": "samples",
    "plot_search": "search_bars",
    "plot_survival": "survival",
    "write_page": "page",
}
__all__ = sorted(_HOMES)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast.report' has no attribute {name!r}")
    return getattr(import_module(f"holdfast.report.{_HOMES[name]}"), name)
