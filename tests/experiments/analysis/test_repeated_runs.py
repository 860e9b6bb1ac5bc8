"""A run that is there twice: the tables that need it say so, the others are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.paper.analysis.tables import analyse
from experiments.paper.figures.every_figure import FIGURES
from holdfast.analysis.study import Study, read_study
from holdfast.report.figures import study_figures
from tests.analysis.synthetic import FACTORIAL, SEEDS, write_suite, write_trajectory

OF_COMPOSITIONS = {"effects", "factorial_model", "synergy", "ranks", "build_up"}
OF_EVERY_RUN = {"configurations", "acquisition", "seed_spread", "seed_spread_by_data_anchor"}
OF_EVERY_RUN |= {"state_size", "capability", "survival", "half_lives"}


@pytest.fixture
def repeated(tmp_path: Path):
    """A factorial with O-LoRA, of which one method's run is in a second directory too."""

    def write(method: str, *more: Path) -> Study:
        suite = write_suite(tmp_path / "suite", (*FACTORIAL, "olora"), SEEDS, tasks=4)
        write_trajectory(tmp_path / "again", method, SEEDS[0], tasks=4)
        return read_study(suite, tmp_path / "again", *more)

    return write


def test_tables_that_do_not_need_it_are_there(repeated) -> None:
    analysis = analyse(repeated("olora"))
    assert set(analysis.tables) == OF_COMPOSITIONS
    for name in OF_EVERY_RUN:
        assert analysis.absent[name].startswith("symbol_qa: olora with seed 41 is there twice, in ")
        assert "suite" in analysis.absent[name] and "again" in analysis.absent[name]


def test_tables_that_need_it_are_refused_by_name(repeated) -> None:
    analysis = analyse(repeated("sd_merge"))
    # These ask for other compositions: the greedy path goes by way of replay.
    apart = {"synergy", "build_up", "allocation_swap"}
    assert set(analysis.tables) == apart
    for name in (OF_COMPOSITIONS | OF_EVERY_RUN) - apart:
        assert "symbol_qa: sd_merge with seed 41 is there twice" in analysis.absent[name]


def test_another_data_set_has_its_tables_and_figures(repeated, tmp_path: Path) -> None:
    other = write_suite(tmp_path / "llm", FACTORIAL, SEEDS, tasks=4, dataset="llm_qa")
    study = repeated("sd_merge", other)
    analysis = analyse(study)
    assert set(analysis.tables["configurations"]["dataset"]) == {"llm_qa"}
    assert analysis.of("symbol_qa", "effects").empty and len(analysis.of("llm_qa", "effects")) == 15
    assert "sd_merge" in analysis.refused["configurations", "symbol_qa"]
    assert "configurations of symbol_qa" in analysis.absent
    drawn = study_figures(study, analysis, FIGURES).figures
    assert set(drawn) == {"survival", "compositions", "noise", "build_up", "matrices"}
