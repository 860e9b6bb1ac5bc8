"""The final runs that a search leads to: its best candidates, in the stored order of tasks.

Source: app:search-outputs, app:search-order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json
from holdfast.learning.config import RunConfig
from holdfast.learning.method import parse_method
from holdfast.results.description import Description

SEEDS = (41, 42, 43)  # of the paper's final runs


def finalists(
    search: Path,
    overrides: Iterable[str],
    seeds: Sequence[int] = SEEDS,
    methods: Sequence[str] | None = None,
) -> list[RunConfig]:
    """The configurations of a search's best candidates, each with every seed.

    search: its directory; overrides: further dotted settings; methods: take the best candidate of
    each of these compositions, None: the best of each allocation rule. Candidates that came
    further in the search are better, then those of a better rank there. The order of tasks is
    that of the stream, unless an override says otherwise.
    Raises HoldfastError when the directory holds no finished search, or the search has no
    candidate of a composition.
    """
    rows = _leaderboard(search)
    if methods is None:
        best = _first_of_each(rows, lambda tag: parse_method(tag).allocation)
        chosen = list(best.values())
    else:
        best = _first_of_each(rows, str)
        for tag in methods:
            if tag not in best:
                raise HoldfastError(f"{search}: no candidate {tag} has a score; leave it out")
        chosen = [best[tag] for tag in methods]
    configs = []
    for row in chosen:
        config = _settings(search, row["candidate"])
        for seed in seeds:
            set_last = ["stream.order_seed=null", *overrides, f"seed={seed}"]
            configs.append(RunConfig.of(config, set_last))
    return configs


def _leaderboard(search: Path) -> list[dict[str, Any]]:
    """The rows of candidates that have a score, the best first."""
    try:
        if read_json(search / "study.json")["study"] == "search":
            rows = [
                row for row in read_json(search / "leaderboard.json") if row["score"] is not None
            ]
            if rows:
                return rows
    except (KeyError, TypeError, HoldfastError):
        pass
    raise HoldfastError(f"{search}: holds no search with a leaderboard; finish one there first")


def _first_of_each(rows: Iterable[dict[str, Any]], group: Any) -> dict[str, dict[str, Any]]:
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(group(row["method"]), row)
    return first


def _settings(search: Path, candidate: str) -> dict[str, Any]:
    """The configuration that one of the candidate's trajectories was learned with."""
    told = search / "store.json"
    store = search / str(read_json(told)["store"]) if told.exists() else search / "cells"
    cells = read_json(search / "study.json")["cells"][candidate]
    return dict(Description.read(store / cells[0]).config)
