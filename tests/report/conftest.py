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
    retention = {tag: 0.3 + 0.15 * sum(levels) for tag, levels in compositions().items()}
    return study_of(
        {
            (tag, seed): fading(20, retention[tag] + 0.01 * seed)
            for tag in retention
            for seed in (1, 2, 3)
        }
    )


@pytest.fixture(scope="session")
def page_text(full: Study) -> str:
    """The page of ``full``, which takes seconds to draw."""
    return render(full, Path("report.html"))
