"""The greedy path, also where it leads away from the best composition."""

from __future__ import annotations

import pytest

from experiments.paper.analysis.build_up import build_up
from holdfast.core.errors import HoldfastError

from .tables import cells, without

FINALS = {
    "vanilla": [0.10, 0.10],
    "si": [0.15, 0.15],
    "sd": [0.30, 0.30],
    "merge": [0.20, 0.22],
    "si_sd": [0.35, 0.25],
    "si_merge": [0.90, 0.90],  # never reached: sd comes first
    "sd_merge": [0.40, 0.50],
    "si_sd_merge": [0.43, 0.43],
}


def test_each_step_adds_what_helps_most_and_goes_on_downhill() -> None:
    path = build_up(cells(FINALS), ["si", "sd", "merge"])
    assert list(path["method"]) == ["vanilla", "sd", "sd_merge", "si_sd_merge"]
    assert list(path["added"]) == ["", "sd", "merge", "si"]
    assert list(path["step"]) == [0, 1, 2, 3]
    assert list(path["strongest"]) == [False, False, True, False]
    assert path["final"].to_list() == pytest.approx([0.1, 0.3, 0.45, 0.43])
    assert path["final_sd"][2] == pytest.approx(0.1 / 2**0.5)  # n - 1


def test_a_tie_goes_to_the_first_factor() -> None:
    table = cells({"vanilla": [0.1], "sd": [0.3], "merge": [0.3], "sd_merge": [0.3]})
    assert list(build_up(table, ["merge", "sd"])["added"]) == ["", "merge", "sd"]
    path = build_up(table, ["sd", "merge"])
    assert list(path["added"]) == ["", "sd", "merge"]
    assert list(path["strongest"]) == [False, True, False]


def test_every_choice_needs_all_of_its_compositions() -> None:
    table = cells(FINALS)
    # Not beside the path, so not needed.
    build_up(without(without(table, "si_merge", 1), "si_merge", 2), ["si", "sd", "merge"])
    with pytest.raises(HoldfastError, match="here: si_sd has no cell with seed 2"):
        build_up(without(table, "si_sd", 2), ["si", "sd", "merge"])
    with pytest.raises(HoldfastError, match="here: none of vanilla has been learned"):
        build_up(table[table["method"] != "vanilla"], ["si", "sd", "merge"])
