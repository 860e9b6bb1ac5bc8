"""A search: the ranks of its methods at every horizon, and how well it predicts the final runs.

Source: app:search-order, app:res-selection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.paper.analysis.replicates import one_dataset, replicates
from holdfast.analysis.study import at_horizon
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import tag_of
from holdfast.results.metrics import DECIMALS


def percentiles(trace: pd.DataFrame) -> pd.DataFrame:
    """The percentile rank of every method of one search, averaged over its variants.

    A candidate's percentile rank is the share of the other candidates at its horizon that rank
    below it; half of those with an equal score count, and a failed candidate has the lowest score.
    trace: ``trace.csv``. Columns: ``horizon``, ``method``, ``percentile`` (share; NaN if there is
    only one candidate) and ``variants`` (candidates of the method that reached the horizon). A
    method without such candidates has no row.
    Source: fig:sho-results.
    """
    pool = trace.groupby("horizon")["candidate"].transform("size")
    scores = trace.assign(score=trace["score"].round(DECIMALS)).groupby("horizon")["score"]
    place = scores.rank(ascending=False, na_option="bottom")
    others = (pool - 1).where(pool > 1)
    ranked = trace.assign(percentile=(pool - place) / others)
    groups = ranked.groupby(["horizon", "method"], sort=False)["percentile"]
    table = groups.agg(percentile="mean", variants="size").reset_index()
    return table.sort_values(
        ["horizon", "percentile"], ascending=[True, False], kind="stable", ignore_index=True
    )


def percentile_bars(traces: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The mean of :func:`percentiles` over the data sets whose search still has the method.

    traces: of a study, by data set. Columns: ``horizon``, ``method``, ``percentile`` and
    ``datasets`` (how many). A method that no search still has gets a row with NaN and 0.
    Source: fig:sho-results.
    """
    if not traces:
        return pd.DataFrame(columns=["horizon", "method", "percentile", "datasets"])
    every = pd.concat([percentiles(trace) for trace in traces.values()])
    groups = every.groupby(["method", "horizon"])["percentile"]
    table = groups.agg(percentile="mean", datasets="size")
    pairs = pd.MultiIndex.from_product(
        [every["method"].unique(), sorted(every["horizon"].unique())], names=["method", "horizon"]
    )
    table = table.reindex(pairs)
    table["datasets"] = table["datasets"].fillna(0).astype(int)
    return table.reset_index()[["horizon", "method", "percentile", "datasets"]]


_TOP = 3


def search_transfer(trace: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """How well the ranking of a search at each horizon agrees with the ranking of the final runs.

    Candidates are grouped by composition, and the best variant at a horizon represents its group.
    Both rankings contain only compositions that the final runs have too; equal scores share the
    mean of their ranks.
    trace: ``trace.csv``; cells: of one data set of a study, only those that
    :func:`holdfast.analysis.study.at_horizon` selects count.
    One row per horizon: ``horizon``, ``compositions`` (how many are ranked),
    ``mean_displacement`` and ``max_displacement`` (of ranks, absolute), ``spearman`` (NaN for one
    composition, or if all scores are equal), ``top3_overlap`` and ``top3`` (how many of the final
    best three are among the search's best three, out of how many).
    Raises HoldfastError for several data sets, for a missing or duplicated cell, naming it, and if
    the search and the final runs have no composition in common.
    Source: tab:rung-vs-canonical, app:search-order.
    """
    final = _final(trace, cells).mean(axis="columns").round(DECIMALS)
    rows = []
    for horizon in sorted(trace["horizon"].unique()):
        best = _best_variants(trace, horizon)["score"]
        both = [method for method in best.index if method in final.index]
        if both:
            rows.append({"horizon": horizon, **_agreement(best[both].round(DECIMALS), final[both])})
    return pd.DataFrame(rows)


def selection(trace: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The scores of the search's winner and of the final runs' leader, each in both.

    An argmax over many noisy scores regresses when it is measured again. trace, cells: as for
    :func:`search_transfer`. The leader has the highest mean among the searched compositions.
    Two rows, ``role`` selected and leader: ``method``, ``candidate`` (the variant), ``horizon``
    (the last that it reached in the search), ``development`` and ``development_sd`` (its score
    there, on the development order), ``report`` and ``report_sd`` (mean final retention of the
    final runs), ``seeds`` (of these). A deviation (n - 1) is NaN for one seed.
    Raises HoldfastError as :func:`search_transfer`, if every candidate of the last horizon failed,
    and if the winner has no final runs.
    Source: app:res-selection.
    """
    finals = _final(trace, cells)
    last = trace["horizon"].max()
    winners = _best_variants(trace, last)
    if winners.empty:
        raise HoldfastError(
            f"the search selects nothing: every candidate at horizon {last} failed; mend and "
            "continue it"
        )
    selected = str(winners.index[0])
    if selected not in finals.index:
        raise HoldfastError(
            f"{one_dataset(cells)}: {selected}, which the search selects, has no final runs; "
            "learn it in a suite"
        )
    leader = str(finals.mean(axis="columns").round(DECIMALS).idxmax())
    return pd.DataFrame(
        [
            _role("selected", selected, trace, finals),
            _role("leader", leader, trace, finals),
        ]
    )


def _final(trace: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Final retention of the searched compositions, by method and seed."""
    runs = at_horizon(cells)
    searched = list(dict.fromkeys(trace["method"]))
    methods = set(map(tag_of, runs["method"]))  # `replicates` refuses a tag with several settings
    learned = [method for method in searched if method in methods]
    if not learned:
        raise HoldfastError(
            f"{one_dataset(cells)}: no composition of the search has final runs; learn some in a "
            "suite, such as the search's winner"
        )
    return replicates(runs, learned)


def _best_variants(trace: pd.DataFrame, horizon: int) -> pd.DataFrame:
    """The best candidate of every method at a horizon, by method, in ranked order."""
    scored = trace[(trace["horizon"] == horizon) & trace["score"].notna()].sort_values("rank")
    return scored.drop_duplicates("method").set_index("method")


def _agreement(search: pd.Series, final: pd.Series) -> dict[str, Any]:
    """Compare two rankings. search: scores, best first; final: means of the same compositions."""
    before, after = search.rank(ascending=False), final.rank(ascending=False)
    displacement = (before - after).abs()
    varied = before.nunique() > 1 and after.nunique() > 1
    top = min(_TOP, len(search))
    leaders = final.sort_values(ascending=False, kind="stable").index[:top]
    return {
        "compositions": len(search),
        "mean_displacement": displacement.mean(),
        "max_displacement": displacement.max(),
        # Spearman's coefficient is Pearson's of the ranks.
        "spearman": before.corr(after) if varied else math.nan,
        "top3_overlap": len(set(search.index[:top]) & set(leaders)),
        "top3": top,
    }


def _role(role: str, method: str, trace: pd.DataFrame, finals: pd.DataFrame) -> dict[str, Any]:
    scored = trace[(trace["method"] == method) & trace["score"].notna()]
    best = scored.sort_values(["horizon", "rank"], ascending=[False, True])
    row = best.iloc[0] if len(best) else trace[trace["method"] == method].iloc[0]
    seeds = [name for name in trace if str(name).startswith("final_")]
    return {
        "role": role,
        "method": method,
        "candidate": row["candidate"],
        "horizon": row["horizon"],
        "development": row["score"],
        "development_sd": row[seeds].astype(float).std(),
        "report": finals.loc[method].mean(),
        "report_sd": finals.loc[method].std(),
        "seeds": finals.shape[1],
    }
