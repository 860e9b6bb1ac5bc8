"""A run that is there twice, several settings of one method: what is said, and what is made."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from experiments.paper.analysis.tables import analyse
from holdfast.analysis.study import read_study
from holdfast.cli.analyse import _dotted
from holdfast.core.errors import HoldfastError
from tests.analysis.synthetic import FACTORIAL, SEEDS, write_search, write_suite, write_trajectory
from tests.analysis.test_configurations import FAST, SLOW, swept

OF_COMPOSITIONS = {"effects", "factorial_model", "synergy", "ranks", "build_up"}
OF_EVERY_RUN = {"configurations", "acquisition", "seed_spread", "seed_spread_by_data_anchor"}
OF_EVERY_RUN |= {"state_size", "capability", "survival", "half_lives"}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A factorial with O-LoRA."""
    place = tmp_path_factory.mktemp("study") / "suite"
    return write_suite(place, (*FACTORIAL, "olora"), SEEDS, tasks=4)


def again(place: Path, method: str) -> Path:
    """A second directory of one method's run."""
    write_trajectory(place / "again", method, SEEDS[0], tasks=4)
    return place / "again"


def test_tables_that_do_not_need_it_are_there(suite: Path, tmp_path: Path) -> None:
    analysis = analyse(read_study(suite, again(tmp_path, "olora")))
    assert set(analysis.tables) == OF_COMPOSITIONS
    for name in OF_EVERY_RUN:
        assert analysis.absent[name].startswith("symbol_qa: olora with seed 41 is there twice, in ")
        assert "suite" in analysis.absent[name] and "again" in analysis.absent[name]


def test_tables_that_need_it_are_refused_by_name(suite: Path, tmp_path: Path) -> None:
    repeated = again(tmp_path, "sd_merge")
    other = write_suite(tmp_path / "llm", FACTORIAL, SEEDS, tasks=4, dataset="llm_qa")
    both = analyse(read_study(suite, repeated, other))
    assert set(both.tables["configurations"]["dataset"]) == {"llm_qa"}
    assert both.of("symbol_qa", "effects").empty and len(both.of("llm_qa", "effects")) == 15
    assert "sd_merge" in both.refused["configurations", "symbol_qa"]
    analysis = analyse(read_study(suite, repeated))
    # These ask for other compositions: the greedy path goes by way of replay.
    apart = {"synergy", "build_up", "allocation_swap"}
    assert set(analysis.tables) == apart
    for name in (OF_COMPOSITIONS | OF_EVERY_RUN) - apart:
        assert "symbol_qa: sd_merge with seed 41 is there twice" in analysis.absent[name]


__all__ = ["swept"]  # a fixture


def test_several_settings_are_said_instead(swept: Path) -> None:
    analysis = analyse(read_study(swept))
    size = analysis.tables["state_size"].set_index("method")["formula"]
    assert size[SLOW] == size[FAST] == "W + P_r"
    # One factorial over several settings would choose one of them; it is said instead.
    assert analysis.absent["effects"] == analysis.absent["synergy"]
    assert analysis.absent["effects"] == (
        "symbol_qa: merge has been learned with 2 settings; this is made for one at a time: "
        "analyse again with --where optim.lr=0.001 or with --where optim.lr=0.002"
    )
    with pytest.raises(HoldfastError, match="no table effects: symbol_qa: merge has been learned"):
        analysis.tables["effects"]
    with pytest.raises(HoldfastError, match="no table effect: did you mean effects"):
        analysis.tables["effect"]


def test_no_ranking_leaves_out_a_method_of_several_settings(swept: Path) -> None:
    """Ranks of vanilla alone, and of the search's methods without merge, would tell nothing."""
    for seed in (1, 2, 3):
        write_trajectory(swept / f"o{seed}", "olora", seed, tasks=4)
    search = write_search(swept / "search", {"vanilla": [0.1], "merge": [0.2]}, (2,), (1, 2))
    absent = analyse(read_study(swept, search)).absent
    for name in ("ranks", "search_transfer", "selection", "allocation_swap"):
        assert "merge has been learned with 2 settings; this is made for one" in absent[name]


def test_the_command_that_is_named_makes_the_factorial(tmp_path: Path) -> None:
    """Of two crossed settings, one a list, with vanilla under each of them too."""
    for method in ("vanilla", "merge"):
        for rate in (0.1, 0.2):
            for targets in (["q_proj", "v_proj"], ["q_proj"]):
                settings = {"optim.lr": rate, "lora.targets": targets}
                name = f"{method}{rate}{len(targets)}"
                write_trajectory(tmp_path / name, method, 1, 4, settings=settings)
    analysis = analyse(read_study(tmp_path))
    assert len(analysis.tables["configurations"]) == 2 * 4
    reason = analysis.absent["effects"]
    assert analysis.absent["ranks"] == reason
    assert "with 4 settings; this is made for one at a time: analyse again with --where" in reason
    for option in reason.partition("analyse again with ")[2].split(" or with "):
        words = shlex.split(option)
        study = read_study(tmp_path, where=_dotted(words[1::2]))
        assert set(words[::2]) == {"--where"} and len(study.cells) == 2
        assert len(analyse(study).tables["effects"]) == 1
