"""Compare more with the paper: metrics, half-lives, allocation rules, search, capability."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from experiments.paper.analysis.compare import beside_interval
from experiments.paper.analysis.factorial import FACTORS, compositions
from experiments.paper.published import DATASETS, dataset_table, paper_table
from holdfast.core.mechanisms import VANILLA

OURS = "si_sd_replay_merge"  # "our method" of the paper's fig:survival
_METRICS = ("diag", "forget", "w10", "w50")
_TRANSFER = ("mean_displacement", "max_displacement", "spearman", "top3_overlap")


def beside_paper(
    tables: Mapping[str, pd.DataFrame], dataset: str | None = None
) -> dict[str, pd.DataFrame]:
    """The tables of an analysis that the paper has too, with the paper's numbers in ``_paper``.

    tables: of :func:`experiments.paper.analysis.tables.analyse`; dataset: as for
    :func:`experiments.paper.analysis.compare.compare`. Numbers are shares. A table without a
    row in common with the paper is left out.

    metrics, as far as measured: ``dataset``, ``method``, ``metric``, ``value``. half_lives:
    ``dataset``, ``role``, ``method`` (the study's), ``half_life``. allocation_swap: ``dataset``,
    ``allocation``, ``change``. capability: ``dataset``, ``method``, ``suite``, ``value`` after the
    last measured task; the paper's value is text, since it may be an upper bound; an interval that
    begins below it is ``inside``. All these have ``low``, ``high`` and ``inside``, as in
    :class:`experiments.paper.analysis.compare.Comparison`. search_transfer: ``dataset``,
    ``horizon`` and four measures of agreement; they are of a single search, so they have no
    interval.
    Source: app:res-all-configs, sec:res-time, tab:allocation-swap, tab:rung-vs-canonical,
    app:res-capability.
    """
    if dataset is not None:
        tables = {
            name: table.assign(dataset=dataset) if "dataset" in table else table
            for name, table in tables.items()
        }
    makers: dict[str, tuple[Callable[..., pd.DataFrame], tuple[str, ...]]] = {
        "metrics": (_metrics, ("means",)),
        "half_lives": (_half_lives, ("half_lives", "configurations")),
        "allocation_swap": (_allocation_swap, ("allocation_swap",)),
        "search_transfer": (_search_transfer, ("search_transfer",)),
        "capability": (_capability, ("capability",)),
    }
    made = {
        name: make(*(tables[source] for source in sources))
        for name, (make, sources) in makers.items()
        if all(source in tables for source in sources)
    }
    return {name: table for name, table in made.items() if len(table)}


def roles(methods: Sequence[str]) -> dict[str, str]:
    """The methods of fig:survival by role. methods: the best first.

    Only methods of the 2^4 factorial count, as in the paper: its strongest standalone mechanism on
    Real-QA is replay, though O-LoRA retains more; its strongest composition there has merged LoRA.
    Source: sec:compositions, sec:res-time.
    """
    methods = [method for method in methods if method in compositions()]
    alone = [method for method in methods if method in FACTORS]
    composed = [method for method in methods if method not in (VANILLA, *alone)]
    by_role = {
        "naive": VANILLA if VANILLA in methods else None,
        "strongest standalone mechanism": next(iter(alone), None),
        "strongest composition": next(iter(composed), None),
        OURS: OURS if OURS in methods else None,
    }
    return {role: method for role, method in by_role.items() if method is not None}


def _metrics(means: pd.DataFrame) -> pd.DataFrame:
    paper = pd.concat(
        [
            dataset_table("all", name)
            .assign(dataset=name)
            .rename(columns={"configuration": "method"})
            for name in DATASETS
        ]
    )
    keys = ["dataset", "method"]
    theirs = paper.melt(keys, list(_METRICS), var_name="metric", value_name="value_paper")
    theirs["value_paper"] /= 100
    ours = means[means["metric"].isin(_METRICS) & means["value"].notna()]
    both = ours[[*keys, "metric", "value", "low", "high"]].merge(theirs, on=[*keys, "metric"])
    return _judged(both, both["value_paper"])


def _judged(table: pd.DataFrame, paper: Iterable[float]) -> pd.DataFrame:
    """Move ``low`` and ``high`` to the end; add ``inside``: whether they hold the paper's value."""
    pairs = list(zip(table["low"], table["high"], strict=True))
    return table.drop(columns=["low", "high"]).assign(**beside_interval(pairs, paper))


def _half_lives(half_lives: pd.DataFrame, configurations: pd.DataFrame) -> pd.DataFrame:
    rows = [
        {"dataset": dataset, "role": role, "method": method}
        for dataset, part in configurations.groupby("dataset", sort=False)
        if dataset in DATASETS
        for role, method in roles(list(part["method"])).items()
    ]
    ours = pd.DataFrame(rows, columns=["dataset", "role", "method"]).merge(
        half_lives[["dataset", "method", "half_life", "low", "high", "ages", "seeds"]],
        on=["dataset", "method"],
    )
    paper = paper_table("sec:res-time").rename(columns={"half_life": "half_life_paper"})
    both = ours.merge(paper, on=["dataset", "role"])
    # With two or more seeds, a missing bound is beyond the horizon.
    drawn = both["seeds"] > 1
    low = both["low"].where(both["low"].notna() | ~drawn, both["ages"])
    high = both["high"].where(both["high"].notna() | ~drawn, math.inf)
    inside = beside_interval(list(zip(low, high, strict=True)), both["half_life_paper"])["inside"]
    table = both.drop(columns=["low", "high", "ages", "seeds"])
    return table.assign(low=both["low"], high=both["high"], inside=inside)


def _allocation_swap(table: pd.DataFrame) -> pd.DataFrame:
    paper = paper_table("tab:allocation-swap").rename(columns={"change": "change_paper"})
    paper["change_paper"] /= 100
    ours = table[["dataset", "allocation", "change", "low", "high"]]
    both = ours.merge(paper, on=["dataset", "allocation"])
    return _judged(both, both["change_paper"])


def _search_transfer(table: pd.DataFrame) -> pd.DataFrame:
    keys = ["dataset", "horizon"]
    paper = paper_table("tab:rung-vs-canonical").rename(columns={"tasks": "horizon"})
    both = table.merge(paper, on=keys, suffixes=("", "_paper"))
    return both[[*keys, *(column for name in _TRANSFER for column in (name, f"{name}_paper"))]]


def _capability(table: pd.DataFrame) -> pd.DataFrame:
    last = table.groupby(["dataset", "method", "suite"])["after_task"].transform("max")
    bounds = {"value_low": "low", "value_high": "high"}
    columns = ["dataset", "method", "suite", "value", *bounds]
    ours = table.loc[table["after_task"] == last, columns].rename(columns=bounds)
    paper = paper_table("app:res-capability").rename(columns={"value": "value_paper"})
    both = ours.merge(paper, on=["dataset", "method", "suite"])
    both = both.assign(value_paper=[_share(text) for text in both["value_paper"]])
    pairs, values = [], []
    for row in both.to_dict("records"):
        # An interval that begins below an upper bound holds a number that the bound allows.
        high = math.inf if row["value_paper"].startswith("<") else row["high"]
        pairs.append((row["low"], high))
        values.append(float(row["value_paper"].removeprefix("<")))
    inside = beside_interval(pairs, values)["inside"]
    low, high = both["low"], both["high"]
    return both.drop(columns=["low", "high"]).assign(low=low, high=high, inside=inside)


def _share(percent: str) -> str:
    """A percentage, or a bound such as ``<8.0``, as a share."""
    bound = "<" if percent.startswith("<") else ""
    return f"{bound}{float(percent.removeprefix('<')) / 100:.3f}"
