"""Compare a study with the paper: retention, ranks, effects, and what cannot be compared."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from experiments.paper.analysis.factorial import FACTORS, compositions, effect_contrasts, factorial
from experiments.paper.analysis.rankings import rank
from experiments.paper.analysis.replicates import by_dataset, one_dataset, replicates
from experiments.paper.published import DATASETS, HORIZON, dataset_table, paper_cells
from holdfast.analysis.uncertainty import bounds, by_seed, contrasted
from holdfast.core.errors import HoldfastError
from holdfast.results import RecallMatrix

SIGNIFICANT = 0.05  # tab:anova
_INTERVAL = ("low", "high", "inside")
_Finals: TypeAlias = Mapping[str, Mapping[int, NDArray[np.float64]]]  # method -> seed -> [tasks]


@dataclass(frozen=True)
class Comparison:
    """A study and the paper side by side, in shares; ``_paper`` marks the paper's numbers.

    compositions: ``dataset``, ``method``, ``final``, ``final_paper`` (means over seeds), ``low``,
    ``high`` (the study's 95% interval), ``inside`` (whether it holds the paper's mean, yes or no;
    empty without an interval, which needs two seeds), ``rank``, ``rank_paper`` (among the methods
    of that data set that both have; equal means share the smaller rank). The paper's best is first.
    effects: ``dataset``, ``term``, ``effect``, ``effect_paper``, ``low``, ``high``, ``inside``,
    ``significant``, ``significant_paper`` (p < 0.05; false with one seed, which has no p),
    ``same_sign``. The paper's largest is first. They are effects of the largest part of the 2^4
    factorial that the study has. The paper's are as published if that is the whole factorial, and
    computed from its means otherwise.
    agreement: one row per data set: ``dataset``, ``methods`` (how many both have), ``spearman`` of
    their means, ``flips`` (pairs of methods in opposite order), ``terms`` and ``same_sign`` (how
    many of these effects have the paper's sign). Spearman is NaN if either side has fewer than
    two different means.
    flips: ``dataset``, ``first``, ``second`` (the paper has first above second, the study below),
    ``places`` and ``places_paper`` (ranks between them). The clearest is first, by the smaller of
    the two distances, then by the larger.
    notes: what could not be compared and what differs, in one line each.
    """

    compositions: pd.DataFrame
    effects: pd.DataFrame
    agreement: pd.DataFrame
    flips: pd.DataFrame
    notes: tuple[str, ...]


def compare(
    cells: pd.DataFrame,
    dataset: str | None = None,
    matrices: Mapping[str, RecallMatrix] | None = None,
) -> Comparison:
    """Compare the cells of a study with the paper's tables.

    Means are over the seeds that most methods of a data set have; a method that lacks one of them,
    or a task, is left out, and ``notes`` says so.
    dataset: the paper's data set to compare with, for a study of one data set with another name;
    None matches data sets by name. matrices: of the study, by path, for the intervals; None for no
    intervals.
    Raises HoldfastError if no data set or no method can be compared, if ``dataset`` is given for
    a study of several, and for a method and seed that occurs twice.
    """
    if dataset is not None:
        one_dataset(cells)
    notes: list[str] = []
    parts = []
    for name, part in by_dataset(cells).items():
        published = dataset or name
        if dataset is None and name not in DATASETS:
            notes.append(f"{name}: not a data set of the paper, which has {', '.join(DATASETS)}")
        else:
            parts.append(_compared(name, part, published, matrices or {}, notes))
    if not any(len(part[0]) for part in parts):
        raise HoldfastError(
            f"nothing to compare with the paper ({'; '.join(notes) or 'no finished cell'}); "
            "say with which of its data sets, or learn some of its methods"
        )
    finals, effects, agreement, flips = map(_joined, zip(*parts, strict=True))
    return Comparison(finals, effects, agreement, flips, tuple(notes))


def _compared(
    name: str,
    cells: pd.DataFrame,
    published: str,
    matrices: Mapping[str, RecallMatrix],
    notes: list[str],
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    paper = paper_cells(published)
    in_paper = list(paper["method"].unique())
    absent = [method for method in in_paper if method not in set(cells["method"])]
    if absent:
        notes.append(f"{name}: not in the study: {', '.join(absent)}")
    cells = _comparable(name, cells, in_paper, notes)
    methods = [method for method in in_paper if method in set(cells["method"])]
    finals = by_seed(cells, matrices, "final") if matrices else {}
    table = _compositions(name, cells, paper, methods, finals)
    effects = _effects(name, cells, paper, finals, notes)
    flips = _flips(table)
    agreement = {
        "dataset": name,
        "methods": len(table),
        "spearman": _spearman(table["rank"], table["rank_paper"]),
        "flips": len(flips),
        "terms": len(effects),
        "same_sign": int(effects["same_sign"].sum()),
    }
    return table, effects, pd.DataFrame([agreement]), flips


def _comparable(
    name: str, cells: pd.DataFrame, in_paper: list[str], notes: list[str]
) -> pd.DataFrame:
    """The cells at the last horizon of methods that the paper has, all with the same seeds."""
    for method in dict.fromkeys(cells["method"]):
        if method not in in_paper:
            notes.append(f"{name}: the paper has no {method}")
    cells = cells[cells["method"].isin(in_paper)]
    horizon = cells["horizon"].max()
    done = cells[(cells["horizon"] == horizon) & cells["final"].notna()]
    if done.empty:
        return done
    if horizon != HORIZON:
        notes.append(f"{name}: final retention after {horizon} tasks, the paper's after {HORIZON}")
    by_method = {method: frozenset(part["seed"]) for method, part in done.groupby("method")}
    # The set of seeds that most methods have; of equally frequent sets the largest.
    counts = Counter(by_method.values())
    seeds = max(counts, key=lambda chosen: (counts[chosen], len(chosen), sorted(chosen)))
    chosen = ", ".join(map(str, sorted(seeds)))
    if seeds != frozenset().union(*by_method.values()):
        notes.append(f"{name}: compared over seeds {chosen}, which most methods have learned")
    complete = [method for method in by_method if by_method[method] >= seeds]
    for method in dict.fromkeys(cells["method"]):
        if method not in complete:
            notes.append(
                f"{name}: {method} is left out, it has not learned {horizon} tasks with each of "
                f"seeds {chosen}"
            )
    return done[done["method"].isin(complete) & done["seed"].isin(seeds)]


def _compositions(
    name: str, cells: pd.DataFrame, paper: pd.DataFrame, methods: list[str], finals: _Finals
) -> pd.DataFrame:
    if not methods:
        columns = ["dataset", "method", "final", "final_paper", *_INTERVAL, "rank", "rank_paper"]
        return pd.DataFrame(columns=columns)
    ours = replicates(cells, methods).mean(axis="columns")
    theirs = replicates(paper, methods).mean(axis="columns")
    pairs = [bounds(contrasted(finals, {method: 1.0})) for method in methods]
    table = pd.DataFrame(
        {
            "dataset": name,
            "method": methods,
            "final": ours,
            "final_paper": theirs,
            **beside_interval(pairs, theirs),
            "rank": rank(ours),
            "rank_paper": rank(theirs),
        }
    )
    return table.sort_values("rank_paper", kind="stable", ignore_index=True)


def _effects(
    name: str, cells: pd.DataFrame, paper: pd.DataFrame, finals: _Finals, notes: list[str]
) -> pd.DataFrame:
    columns = ["dataset", "term", "effect", "effect_paper", *_INTERVAL]
    columns += ["significant", "significant_paper"]
    factors = _factors(set(cells["method"]))
    if not factors:
        notes.append(f"{name}: no effects; the least is vanilla and one mechanism added to it")
        return pd.DataFrame(columns=[*columns, "same_sign"])
    if factors != FACTORS:
        notes.append(f"{name}: effects of the part of the factorial with {', '.join(factors)} only")
    ours = factorial(cells, factors).effects
    if factors == FACTORS:
        theirs = _published(one_dataset(paper))
    else:
        theirs = factorial(paper, factors).effects[["term", "effect", "p"]]
    table = theirs.merge(ours, on="term", suffixes=("_paper", ""))
    table["dataset"] = name
    contrasts = effect_contrasts(table["term"], factors)
    pairs = [bounds(contrasted(finals, contrast)) for contrast in contrasts]
    table = table.assign(**beside_interval(pairs, table["effect_paper"]))
    table["significant"] = table["p"] < SIGNIFICANT
    table["significant_paper"] = table["p_paper"] < SIGNIFICANT
    table["same_sign"] = np.sign(table["effect"]) == np.sign(table["effect_paper"])
    return table[[*columns, "same_sign"]]


def beside_interval(
    pairs: Sequence[tuple[float, float]], paper: Iterable[float]
) -> dict[str, list[Any]]:
    """Columns ``low``, ``high`` and ``inside``: whether the paper's value is between, yes or no."""
    inside = [
        "" if math.isnan(low) else "yes" if low <= value <= high else "no"
        for (low, high), value in zip(pairs, paper, strict=True)
    ]
    return {"low": [low for low, _ in pairs], "high": [high for _, high in pairs], "inside": inside}


def _published(dataset: str) -> pd.DataFrame:
    """The paper's ``term``, ``effect`` (a share) and ``p`` (or its bound, as published)."""
    table = dataset_table("anova", dataset)
    p = table["p"].str.removeprefix("<").astype(float)
    return pd.DataFrame({"term": table["term"], "effect": table["effect"] / 100, "p": p})


def _factors(methods: set[str]) -> tuple[str, ...]:
    """The largest set of factors whose whole factorial the study has; the first of equal ones."""
    for size in range(len(FACTORS), 0, -1):
        for factors in itertools.combinations(FACTORS, size):
            if methods >= compositions(factors).keys():
                return factors
    return ()


def _flips(table: pd.DataFrame) -> pd.DataFrame:
    rows = [
        (first.dataset, first.method, second.method, places, places_paper)
        for first, second in itertools.combinations(table.itertuples(), 2)
        if (places := first.rank - second.rank) > 0
        and (places_paper := second.rank_paper - first.rank_paper) > 0
    ]
    rows.sort(key=lambda row: (min(row[3:]), max(row[3:])), reverse=True)
    return pd.DataFrame(rows, columns=["dataset", "first", "second", "places", "places_paper"])


def _spearman(ranks: pd.Series, others: pd.Series) -> float:
    if min(ranks.nunique(), others.nunique()) < 2:
        return math.nan
    return float(stats.spearmanr(ranks, others).statistic)


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    # An empty table has no types; pandas would let it change the types of the others.
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else tables[0]
