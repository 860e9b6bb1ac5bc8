"""Analyse the saturated 2^k factorial of a response, with seeds as replicates.

Source: sec:res-factorial, app:res-anova.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from experiments.paper.analysis.replicates import by_dataset, one_dataset, replicates
from holdfast.core.mechanisms import ALLOCATIONS, ANCHORS, VANILLA
from holdfast.results.metrics import DECIMALS

FACTORS = ("si", "sd", "replay", "merge")  # of the paper's 2^4 factorial, sec:results


def composition(present: Collection[str]) -> str:
    """The canonical tag of some mechanisms, in any order; ``vanilla`` for none."""
    return "_".join(name for name in (*ANCHORS, *ALLOCATIONS) if name in present) or VANILLA


def compositions(factors: Sequence[str] = FACTORS) -> dict[str, tuple[bool, ...]]:
    """The 2^k tags of a full factorial, each with the level of every factor, in ``factors``' order.

    In standard order: the first factor changes fastest, ``vanilla`` comes first.
    """
    tags = {}
    for reversed_levels in itertools.product((False, True), repeat=len(factors)):
        levels = reversed_levels[::-1]
        tags[composition(list(itertools.compress(factors, levels)))] = levels
    return tags


@dataclass(frozen=True)
class Factorial:
    """Main effects and all interactions of k factors on one response of one data set.

    effects: columns ``term`` (factors joined by ``:``), ``effect`` (in the unit of the response),
    ``sum_of_squares``, ``share`` of the total sum of squares, ``f`` with 1 and ``error_df`` degrees
    of freedom, and its ``p``; the largest effect first.
    n: number of cells; rmse: root of the error mean square, the pooled standard deviation over
    seeds; standard_error: of every effect; r2: the share of all terms together.

    One seed gives no estimate of the error: ``f``, ``p``, rmse and standard_error are NaN.
    """

    dataset: str
    response: str
    factors: tuple[str, ...]
    effects: pd.DataFrame
    n: int
    error_df: int
    rmse: float
    standard_error: float
    r2: float


def factorial(
    cells: pd.DataFrame, factors: Sequence[str] = FACTORS, response: str = "final"
) -> Factorial:
    """Analyse the 2^k compositions of ``factors``; cells of other methods are ignored.

    A main effect is the mean response with the factor minus the mean without it. An interaction is
    the mean over compositions with a positive product of the factors' signs minus the mean over
    those with a negative one. So every effect has the standard error 2 rmse / sqrt(n).

    cells: of one data set of a study; response: one of its columns.
    Raises HoldfastError for an unbalanced design, naming the cell that is missing, undefined,
    duplicated, or not comparable with the others.
    Source: tab:anova, tab:app-anova-symbol-qa, tab:app-anova-llm-qa, tab:app-anova-real-qa.
    """
    levels = compositions(factors)
    table = replicates(cells, levels, response)
    values = table.to_numpy(dtype=float)  # [2^k, seeds]
    signs = np.where(np.array(list(levels.values())), 1.0, -1.0)  # [2^k, k]
    places = [
        list(chosen)
        for size in range(1, len(factors) + 1)
        for chosen in itertools.combinations(range(len(factors)), size)
    ]
    contrasts = np.stack([signs[:, chosen].prod(axis=1) for chosen in places])  # [terms, 2^k]
    effect = contrasts @ values.mean(axis=1) / (len(levels) / 2)
    rounding = 10.0**-DECIMALS * np.abs(values).max()
    effect[np.abs(effect) < rounding] = 0.0
    squares = values.size / 4 * effect**2
    apart = values - values.mean(axis=1, keepdims=True)
    apart[np.abs(apart) < rounding] = 0.0
    residual = float((apart**2).sum())
    error_df = values.size - len(levels)
    mean_square = residual / error_df if error_df else math.nan
    # A response without spread divides by zero: F is infinite for an effect, else NaN. Above,
    # effects and residuals within the rounding of a mean were set to 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        share = squares / (squares.sum() + residual)
        f = squares / np.float64(mean_square)
    effects = pd.DataFrame(
        {
            "term": [":".join(factors[place] for place in chosen) for chosen in places],
            "effect": effect,
            "sum_of_squares": squares,
            "share": share,
            "f": f,
            "p": stats.f.sf(f, 1, error_df) if error_df else np.nan,
        }
    )
    largest_first = effects["effect"].abs().sort_values(ascending=False, kind="stable").index
    rmse = math.sqrt(mean_square)
    return Factorial(
        dataset=one_dataset(cells),
        response=response,
        factors=tuple(factors),
        effects=effects.loc[largest_first].reset_index(drop=True),
        n=values.size,
        error_df=error_df,
        rmse=rmse,
        standard_error=2 * rmse / math.sqrt(values.size),
        r2=float(share.sum()),
    )


def synergy(cells: pd.DataFrame, first: str = "replay", second: str = "merge") -> pd.DataFrame:
    """The gain of two mechanisms over vanilla's mean final retention, alone and as a pair.

    One row per data set: ``dataset``, ``apart`` (the sum of the two single gains) and ``together``
    (the gain of the pair).
    Raises HoldfastError naming the cell if one of the four compositions is incomplete.
    Source: sec:res-factorial.
    """
    rows = []
    for dataset, part in by_dataset(cells).items():
        tags = [VANILLA, composition([first]), composition([second]), composition([first, second])]
        vanilla, with_first, with_second, both = replicates(part, tags).mean(axis="columns")
        rows.append((dataset, with_first + with_second - 2 * vanilla, both - vanilla))
    return pd.DataFrame(rows, columns=["dataset", "apart", "together"])


def effect_contrasts(terms: Iterable[str], factors: Sequence[str]) -> list[dict[str, float]]:
    """For each term, such as ``si:merge``, the weight of every composition in its effect.

    Source: tab:anova.
    """
    levels = compositions(factors)
    return [
        {
            method: (-1.0) ** sum(not row[factors.index(name)] for name in term.split(":"))
            / (len(levels) / 2)
            for method, row in levels.items()
        }
        for term in terms
    ]
