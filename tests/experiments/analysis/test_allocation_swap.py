"""Which composition is swapped, and by how much it changes."""

from __future__ import annotations

import pandas as pd
import pytest

from experiments.paper.analysis.allocation_swap import allocation_swap
from holdfast.core.errors import HoldfastError

from .tables import cells, without

FINALS = {
    "sd_replay_merge": [0.9, 0.9],  # the best merged one, but without a partner
    "si_merge": [0.5, 0.7],
    "si_olora": [0.4, 0.5],
    "si_osrm": [0.8, 0.8],
    "merge": [0.1, 0.1],
    "olora": [0.99, 0.99],  # partner of a weaker one
    "si": [0.2, 0.2],
    "sd_osrm": [0.3, 0.3],  # partner of none
}


def test_the_best_merged_composition_with_a_partner_is_swapped() -> None:
    table = allocation_swap(cells(FINALS))
    assert table[["allocation", "merged", "swapped"]].to_numpy().tolist() == [
        ["olora", "si_merge", "si_olora"],
        ["osrm", "si_merge", "si_osrm"],
    ]
    assert table["change"].to_list() == pytest.approx([-0.15, 0.2])
    assert table["final_merged"].to_list() == pytest.approx([0.6, 0.6])
    assert table["final_swapped"].to_list() == pytest.approx([0.45, 0.8])


def test_one_partner_is_enough_and_a_data_set_without_any_has_no_row() -> None:
    both = pd.concat(
        [cells(FINALS, "a"), cells({"merge": [0.3], "osrm": [0.2]}, "b"), cells({"sd": [0.1]}, "c")]
    )
    table = allocation_swap(both)
    assert list(table["dataset"]) == ["a", "a", "b"]
    assert table["change"][2] == pytest.approx(-0.1)


def test_what_is_missing_is_refused() -> None:
    with pytest.raises(HoldfastError, match="here: si_osrm has no cell with seed 2"):
        allocation_swap(without(cells(FINALS), "si_osrm", 2))
    with pytest.raises(HoldfastError, match="no composition both with merge and with olora"):
        allocation_swap(cells({"si_merge": [0.1], "sd_olora": [0.1]}))
