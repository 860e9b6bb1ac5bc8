"""Percentile ranks of the methods of a search at every horizon."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

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
