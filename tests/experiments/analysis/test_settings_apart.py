"""A factorial is made of one setting of each method; several are said, with how to choose."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from experiments.paper.analysis.tables import analyse
from holdfast.analysis.study import read_study
from holdfast.cli.analyse import _dotted
from holdfast.core.errors import HoldfastError
from tests.analysis.synthetic import write_trajectory
from tests.analysis.test_settings import FAST, SLOW, swept

__all__ = ["swept"]  # a fixture


def test_several_settings_are_said_instead(swept: Path) -> None:
    analysis = analyse(read_study(swept))
    size = analysis.tables["state_size"].set_index("method")["formula"]
    assert size[SLOW] == size[FAST] == "W + P_r"
    # One factorial over several settings would choose one of them; it is said instead.
    assert (
        analysis.absent["effects"]
        == analysis.absent["synergy"]
        == (
            "symbol_qa: merge has been learned with 2 settings; this is made for one at a time: "
            "analyse again with --where optim.lr=0.001 or with --where optim.lr=0.002"
        )
    )
    with pytest.raises(HoldfastError, match="no table effects: symbol_qa: merge has been learned"):
        analysis.tables["effects"]
    with pytest.raises(HoldfastError, match="no table effect: did you mean effects"):
        analysis.tables["effect"]


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
    told = analysis.absent["effects"]
    assert analysis.absent["ranks"] == told
    assert "with 4 settings; this is made for one at a time: analyse again with --where" in told
    for option in told.partition("analyse again with ")[2].split(" or with "):
        words = shlex.split(option)
        study = read_study(tmp_path, where=_dotted(words[1::2]))
        assert set(words[::2]) == {"--where"} and len(study.cells) == 2
        assert len(analyse(study).tables["effects"]) == 1
