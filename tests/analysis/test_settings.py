"""Two settings of one method are two rows of every table and two lines of every figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.analysis.study import read_study
from holdfast.analysis.tables import analyse
from holdfast.core.errors import HoldfastError
from holdfast.report.figures import study_figures
from holdfast.report.names import looks, method_name
from tests.analysis.synthetic import write_trajectory

SLOW, FAST = "merge optim.lr=0.001", "merge optim.lr=0.002"


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """vanilla and merge; merge at two learning rates, three seeds, in loose directories."""
    for seed in (1, 2, 3):
        write_trajectory(tmp_path / f"v{seed}", "vanilla", seed, tasks=4)
        for rate in (1e-3, 2e-3):
            settings = {"optim.lr": rate}
            write_trajectory(
                tmp_path / f"m{rate}-{seed}", "merge", seed, tasks=4, settings=settings
            )
    return tmp_path


def test_tables_and_figures_are_keyed_by_the_settings_that_differ(swept: Path) -> None:
    study = read_study(swept)
    assert study.missing == ()
    analysis = analyse(study)
    table = analysis.tables["configurations"].set_index("method")
    assert set(table.index) == {"vanilla", SLOW, FAST}
    assert (table["seeds"] == 3).all() and table["final_sd"].notna().all()
    assert set(analysis.tables["survival"]["method"]) == {"vanilla", SLOW, FAST}
    assert {"survival", "matrices"} <= set(study_figures(study, analysis).figures)
    with pytest.raises(HoldfastError, match="no table item: did you mean items"):
        analysis.tables["item"]


def test_one_setting_of_a_sweep_is_a_study_as_any_other(swept: Path) -> None:
    study = read_study(swept, where={"optim.lr": 1e-3})
    assert study.missing == ("3 trajectories without optim.lr=0.001: left out",)
    assert set(study.cells["method"]) == {"vanilla", "merge"}
    assert len(analyse(study).tables["configurations"]) == 2


def test_a_setting_that_nobody_has_is_refused(swept: Path) -> None:
    for name, words in (
        ("optim.lr", "optim.lr=5: no run has that, but optim.lr=0.001, optim.lr=0.002"),
        ("optim.rl", "optim.rl: no run has that setting; did you mean optim.lr?"),
    ):
        with pytest.raises(HoldfastError, match=words):
            read_study(swept, where={name: 5})


def test_a_seed_that_one_setting_lacks_is_named(tmp_path: Path) -> None:
    for seed, rate in ((1, 0.1), (2, 0.1), (3, 0.2)):
        settings = {"optim.lr": rate}
        write_trajectory(tmp_path / f"v{seed}", "vanilla", seed, settings=settings)
    assert read_study(tmp_path).missing == (
        "symbol_qa vanilla optim.lr=0.1: no trajectory with seed 3, which others have",
        "symbol_qa vanilla optim.lr=0.2: no trajectory with seed 1, 2, which others have",
    )


def test_settings_are_in_the_name_and_the_first_keeps_the_methods_look() -> None:
    assert method_name(SLOW) == "M, optim.lr=0.001"
    drawn = looks(["vanilla", SLOW, FAST])
    assert drawn[SLOW] == looks(["merge"])["merge"]
    assert len(set(drawn.values())) == 3


def test_settings_are_told_apart_within_a_data_set(tmp_path: Path) -> None:
    for name, rate in (("symbol_qa", 0.1), ("others", 0.2)):
        settings = {"optim.lr": rate}
        write_trajectory(tmp_path / name, "merge", 1, 3, dataset=name, settings=settings)
    assert set(read_study(tmp_path).cells["method"]) == {"merge"}


def test_a_setting_of_a_plug_in_is_called_as_a_user_writes_it(tmp_path: Path) -> None:
    for strength in (0.1, 1.0):
        settings = {"plugins.tether": {"strength": strength}}
        write_trajectory(tmp_path / f"{strength}", "tether_merge", 1, 3, settings=settings)
    both = {f"tether_merge tether.strength={strength}" for strength in (0.1, 1.0)}
    assert set(read_study(tmp_path).cells["method"]) == both
    assert len(read_study(tmp_path, where={"tether.strength": 1.0}).cells) == 1
