"""From the search's ranking to the final one: the paper's agreement table, and the winner."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from experiments.paper.analysis.search import search_transfer, selection
from experiments.paper.analysis.tables import analyse
from experiments.paper.published import paper_table
from holdfast.analysis.study import read_study
from holdfast.core.errors import HoldfastError
from tests.analysis.synthetic import write_search

from . import tables

NAMES = ["sd_replay_merge", "replay_merge", "si_replay", "sd", "si", "merge"]


def cells(finals: dict[str, list[float]], dataset: str = "symbol_qa") -> pd.DataFrame:
    """Cells as those of a suite, of 100 tasks and seeds from 41."""
    table = tables.cells(finals, dataset, horizon=100)
    method, seed = table["method"], table["seed"] + 40
    return table.assign(seed=seed, study="suite", candidate=method, path=method + seed.astype(str))


def trace(*rungs: tuple[int, dict[str, float | list[float]]]) -> pd.DataFrame:
    """A search by horizon: candidates with a score, or the finals of its seeds."""
    rows = []
    for horizon, scores in rungs:
        finals = {name: [v] if isinstance(v, float) else v for name, v in scores.items()}
        mean = {name: sum(values) / len(values) for name, values in finals.items()}
        order = sorted(mean, key=lambda name: (math.isnan(mean[name]), -mean[name]))
        for rank, name in enumerate(order, start=1):
            by_seed = {f"final_{seed}": v for seed, v in enumerate(finals[name], start=41)}
            rows.append({
                "horizon": horizon, "rank": rank, "candidate": name, "method": name.split()[0],
                "score": mean[name], **by_seed,
            })  # fmt: skip
    return pd.DataFrame(rows)


def descending(names: list[str]) -> dict[str, float]:
    return {name: 0.9 - place / 100 for place, name in enumerate(names)}


# Rows of tab:rung-vs-canonical with a permutation that has those numbers: the search's rank of
# the composition that is finally first, second, ...
PERMUTATIONS = [
    ("symbol_qa", 50, (2, 4, 1, 3, 5)),
    ("symbol_qa", 100, (2, 1, 3)),
    ("llm_qa", 20, (1, 2, 4, 3, 5, 6)),
    ("llm_qa", 50, (1, 2, 4, 3)),
    ("real_qa", 50, (1, 2, 3, 4)),
]


@pytest.mark.parametrize(("dataset", "horizon", "search_ranks"), PERMUTATIONS)
def test_the_papers_agreement(dataset: str, horizon: int, search_ranks: tuple[int, ...]) -> None:
    table = paper_table("tab:rung-vs-canonical")
    rows = table[(table["dataset"] == dataset) & (table["tasks"] == horizon)]
    (published,) = rows.to_dict("records")
    names = NAMES[: len(search_ranks)]
    searched = sorted(names, key=lambda name: search_ranks[names.index(name)])
    (row,) = search_transfer(
        trace((horizon, descending(searched))),
        cells({name: [final] for name, final in descending(names).items()}),
    ).to_dict("records")
    assert (row["horizon"], row["top3"]) == (horizon, 3)
    for column in ("compositions", "max_displacement", "top3_overlap"):
        assert row[column] == published[column]
    assert round(row["mean_displacement"], 1) == published["mean_displacement"]
    assert round(row["spearman"], 2) == published["spearman"]


def test_the_best_variant_stands_for_its_composition_and_others_do_not_count() -> None:
    final = cells({"sd": [0.5], "si": [0.4], "merge": [0.3], "olora": [0.9]})
    searched = trace(
        (10, {"sd a=3": 0.1, "sd a=1": 0.6, "si": 0.5, "online_ewc": 0.8, "merge": 0.2}),
        (20, {"sd a=3": 0.1, "si": 0.5}),
        (50, {"si": 0.5}),
        (100, {"online_ewc": 0.5}),
    )
    transfer = search_transfer(searched, final)
    assert list(transfer["horizon"]) == [10, 20, 50]  # nothing compares at the last
    assert list(transfer["compositions"]) == [3, 2, 1]
    assert list(transfer["max_displacement"]) == [0, 1, 0]
    assert list(transfer["spearman"])[:2] == pytest.approx([1, -1])
    assert math.isnan(transfer["spearman"].iloc[2])
    level = search_transfer(trace((10, {"sd": 0.0, "si": 0.0, "merge": math.nan})), final).iloc[0]
    assert math.isnan(level["spearman"])
    assert (level["compositions"], level["mean_displacement"]) == (2, 0.5)  # a failure has no rank
    assert list(transfer["top3_overlap"]) == list(transfer["top3"]) == [3, 2, 1]


def test_the_papers_winner_regresses() -> None:
    # app:res-selection: 23.4 on the development order becomes 18.5, the leader has 22.4 and 23.2.
    final = cells({
        "si_sd_replay_merge": [0.157, 0.185, 0.213],
        "sd_replay_merge": [0.190, 0.232, 0.274],
        "olora": [0.9, 0.9, 0.9],
    })  # fmt: skip
    last: dict[str, float | list[float]] = {
        "si_sd_replay_merge a=1": [0.204, 0.234, 0.264],
        "sd_replay_merge a=1": [0.2, 0.21, 0.22],
        "sd_replay_merge a=3": [0.214, 0.224, 0.234],
    }
    searched = trace(
        (50, {"si_sd_replay_merge a=1": 0.5, "sd_replay_merge a=1": 0.6, "vanilla": 0.1}),
        (100, last),
    )
    selected, leader = selection(searched, final).to_dict("records")
    assert (selected["role"], selected["method"]) == ("selected", "si_sd_replay_merge")
    columns = ("development", "development_sd", "report", "report_sd")
    assert [selected[name] for name in columns] == pytest.approx([0.234, 0.03, 0.185, 0.028])
    assert (leader["role"], leader["candidate"]) == ("leader", "sd_replay_merge a=3")
    assert (leader["development"], leader["report"]) == pytest.approx((0.224, 0.232))
    assert selected["seeds"] == leader["seeds"] == 3 and leader["horizon"] == 100


def test_a_leader_that_the_search_gave_up_keeps_its_last_score() -> None:
    final = cells({"sd": [0.5], "si": [0.6]})
    searched = trace((10, {"sd": 0.9, "si": 0.8}), (20, {"sd": 0.7}))
    selected, leader = selection(searched, final).to_dict("records")
    assert (selected["method"], selected["horizon"]) == ("sd", 20)
    assert (leader["method"], leader["horizon"], leader["development"]) == ("si", 10, 0.8)
    assert math.isnan(selected["report_sd"]) and math.isnan(selected["development_sd"])


def test_what_is_missing_is_refused_by_name() -> None:
    searched = trace((10, {"sd": 0.9, "si": 0.8}))
    whole = cells({"sd": [0.5, 0.6], "si": [0.4, 0.5]})
    lacking = whole[(whole["method"] != "si") | (whole["seed"] != 42)]
    for table in (search_transfer, selection):
        with pytest.raises(HoldfastError, match="symbol_qa: si has no cell with seed 42"):
            table(searched, lacking)
        with pytest.raises(HoldfastError, match="no composition of the search has final runs"):
            table(searched, cells({"olora": [0.1]}))
        with pytest.raises(HoldfastError, match="choose one"):
            table(searched, pd.concat([whole, cells({"sd": [0.1, 0.2]}, "llm_qa")]))
    with pytest.raises(HoldfastError, match="sd, which the search selects, has no final runs"):
        selection(searched, cells({"si": [0.1]}))
    with pytest.raises(HoldfastError, match="every candidate at horizon 10 failed"):
        selection(trace((10, {"si": math.nan})), cells({"si": [0.1]}))


def test_a_search_whose_trajectories_are_gone_is_still_analysed(tmp_path: Path) -> None:
    search = write_search(tmp_path / "search", {"sd": [0.1, 0.1], "si": [0.2]}, (2, 4), cells=False)
    analysis = analyse(read_study(search))
    assert set(analysis.tables) == {"search_percentiles"}
    assert "no final run to set beside the search" in analysis.absent["selection"]
