"""More of a study beside the paper: the paper beside itself, and what a study lacks."""

from __future__ import annotations

import pandas as pd
import pytest

from experiments.paper.analysis.beside_paper import beside_paper, roles
from experiments.paper.published import DATASETS, dataset_table, paper_table

METRICS = ["diag", "forget", "w10", "w50"]


def as_analysed() -> dict[str, pd.DataFrame]:
    """The paper's own numbers as the tables of an analysis."""
    configurations = pd.concat(
        [dataset_table("all", name).assign(dataset=name) for name in DATASETS], ignore_index=True
    ).rename(columns={"configuration": "method"})
    configurations[["final", *METRICS]] /= 100
    swap = paper_table("tab:allocation-swap")
    capability = paper_table("app:res-capability").assign(after_task=100)
    capability["value"] = capability["value"].str.removeprefix("<").astype(float) / 100
    lives = paper_table("sec:res-time")
    lives["method"] = [
        roles(list(configurations.query("dataset == @life.dataset")["method"]))[life.role]
        for life in lives.itertuples()
    ]
    bounds = {"low": float("nan"), "high": float("nan")}
    means = configurations.melt(["dataset", "method"], METRICS, var_name="metric")
    with_bounds = means.assign(low=means["value"] - 1e-9, high=means["value"] + 1e-9)
    return {
        "configurations": configurations,
        "means": with_bounds,
        "half_lives": lives.drop_duplicates(["dataset", "method"]).assign(
            **bounds, ages=100, seeds=1
        ),
        "allocation_swap": swap.assign(change=swap["change"] / 100, low=-1.0, high=-0.9),
        "search_transfer": paper_table("tab:rung-vs-canonical").rename(
            columns={"tasks": "horizon"}
        ),
        "capability": capability.assign(value_low=0.0, value_high=1.0),
    }


def test_the_paper_is_beside_itself() -> None:
    beside = beside_paper(as_analysed())
    assert {name: len(table) for name, table in beside.items()} == {
        "metrics": 3 * 21 * 4, "half_lives": 12, "allocation_swap": 6, "search_transfer": 12,
        "capability": 11,
    }  # fmt: skip
    for name, ours in (
        ("metrics", "value"), ("half_lives", "half_life"), ("allocation_swap", "change"),
        ("search_transfer", "spearman"), ("search_transfer", "top3_overlap"),
    ):  # fmt: skip
        table = beside[name]
        assert table[ours].to_numpy() == pytest.approx(table[f"{ours}_paper"].to_numpy())
    capability = beside["capability"]
    shares = capability["value_paper"].str.removeprefix("<").astype(float)
    assert capability["value"].to_numpy() == pytest.approx(shares.to_numpy())
    assert (capability["value_paper"] == "<0.080").sum() == 3
    inside = {name: set(table["inside"]) for name, table in beside.items() if "inside" in table}
    assert inside == {
        "metrics": {"yes"}, "half_lives": {""}, "allocation_swap": {"no"}, "capability": {"yes"},
    }  # fmt: skip


def test_a_half_life_beyond_the_horizon_may_be_any_longer_one() -> None:
    tables = as_analysed()
    lives = tables["half_lives"]
    nothing = float("nan")
    for low, high, inside in ((1, nothing, "yes"), (nothing, nothing, "no"), (45, nothing, "no")):
        table = lives.assign(low=low, high=high, ages=100, seeds=2)
        half_lives = beside_paper({**tables, "half_lives": table})["half_lives"]
        assert set(half_lives["inside"]) == {inside}
    beside = beside_paper({**tables, "half_lives": lives.assign(low=2, high=19, seeds=2)})
    judged = beside["half_lives"].set_index(["dataset", "role"])["inside"]
    assert judged["symbol_qa", "naive"] == "no" and judged["real_qa", "naive"] == "yes"
    assert judged["symbol_qa", "strongest composition"] == "yes"


def test_half_lives_are_of_the_papers_methods_by_role() -> None:
    assert roles(["kfac_merge", "si_merge", "merge", "replay", "vanilla"]) == {
        "naive": "vanilla",
        "strongest standalone mechanism": "merge",
        "strongest composition": "si_merge",
    }
    methods = ["kfac_merge", "kfac", "si_merge", "si", "vanilla"]
    configurations = pd.DataFrame({"dataset": "real_qa", "method": methods})
    configurations[METRICS] = 0.5
    lives = pd.DataFrame({"dataset": "real_qa", "method": methods[:4], "half_life": [9, 8, 7, 6]})
    lives = lives.assign(low=5.0, high=8.0, ages=100, seeds=3)
    half_lives = beside_paper({"half_lives": lives, "configurations": configurations})["half_lives"]
    assert half_lives[["role", "method", "half_life", "half_life_paper"]].to_numpy().tolist() == [
        ["strongest standalone mechanism", "si", 6, 11],
        ["strongest composition", "si_merge", 7, 44],
    ]


@pytest.mark.parametrize(
    ("dataset", "alone", "composed"),
    [("symbol_qa", 4.2, 23.2), ("llm_qa", 7.5, 41.8), ("real_qa", 12.5, 54.8)],
)
def test_roles_have_the_methods_whose_final_the_paper_names(
    dataset: str, alone: float, composed: float
) -> None:
    """Of sec:compositions, whose half-lives sec:res-time tells."""
    table = dataset_table("all", dataset)
    finals = dict(zip(table["configuration"], table["final"], strict=True))
    methods = roles(list(table["configuration"]))
    assert finals[methods["strongest standalone mechanism"]] == alone
    assert finals[methods["strongest composition"]] == composed


def test_only_the_last_measured_boundary_counts() -> None:
    suite = {"dataset": "mine", "method": "si_replay_merge", "suite": "average"}
    values = {"value": [0.5, 0.25], "value_low": 0.2, "value_high": 0.3}
    table = pd.DataFrame({**suite, "after_task": [50, 100], **values})
    assert beside_paper({"capability": table}) == {}
    capability = beside_paper({"capability": table}, dataset="llm_qa")["capability"]
    assert capability[["value", "value_paper"]].to_numpy().tolist() == [[0.25, "0.130"]]


@pytest.mark.parametrize(
    ("low", "high", "inside"), [(0.03, 0.06, "yes"), (0.03, 0.1, "yes"), (0.09, 0.1, "no")]
)
def test_an_interval_below_a_bound_of_the_paper_agrees_with_it(
    low: float, high: float, inside: str
) -> None:
    """The paper says that it is below 8.0%."""
    row = ("symbol_qa", "si_sd_replay_osrm", 100, "average", (low + high) / 2, low, high)
    columns = ["dataset", "method", "after_task", "suite", "value", "value_low", "value_high"]
    table = beside_paper({"capability": pd.DataFrame([row], columns=columns)})["capability"]
    assert table[["value_paper", "low", "high", "inside"]].to_numpy().tolist() == [
        ["<0.080", low, high, inside]
    ]
