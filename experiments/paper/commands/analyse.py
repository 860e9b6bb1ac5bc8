"""`python -m experiments.paper analyse`: every table and figure of the paper's study."""

from __future__ import annotations

from holdfast.cli.analyse import Directories, Drawn, Out, Where, write_analysis


def analyse(
    directories: Directories, out: Out = None, figures: Drawn = True, where: Where = None
) -> None:
    """Make every table and figure of the paper that finished trajectories give."""
    from experiments.paper.analysis.tables import TABLES
    from experiments.paper.figures.every_figure import FIGURES

    write_analysis(directories, out, where or [], TABLES, FIGURES if figures else {})
