"""A study that several tests look at, and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.paper.analysis.factorial import compositions
from holdfast.analysis.study import Study
from holdfast.report.pages import render
from tests.report.page_study import fading, study_of


@pytest.fixture(scope="session")
def full() -> Study:
    """A complete 2^4 of 20 tasks with three seeds; the more mechanisms, the slower the fading."""
    shares = {
        (tag, seed): 0.3 + 0.15 * sum(levels) + 0.01 * seed
        for tag, levels in compositions().items()
        for seed in (1, 2, 3)
    }
    return study_of({run: fading(20, share) for run, share in shares.items()})


@pytest.fixture(scope="session")
def page_text(full: Study) -> str:
    """The page of ``full``, which takes seconds to draw."""
    return render(full, Path("report.html"))
