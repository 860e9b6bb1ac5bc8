"""Task-level successive halving: learn a few tasks, keep the best candidates, continue them.

Source: alg:search, app:search.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.core.config import check_same, given_overrides, read_format
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json, write_json
from holdfast.learning.config import RunConfig
from holdfast.learning.method import parse_method
from holdfast.learning.stream import stream_of
from holdfast.model.sources.fetch import lasting_name
from holdfast.results import final
from holdfast.results.metrics import DECIMALS
from holdfast.results.record import Description, is_described, task_seconds
from holdfast.studies.directory import advance, lock_study, measured, write_table
from holdfast.studies.executor import Cell, Executor, Outcome, Watch, with_tracker
from holdfast.studies.recipe import Candidate, SearchRecipe

SEEDS = (41, 42, 43)  # of the paper's final runs


@dataclass(frozen=True)
class Standing:
    """The result of a candidate at one horizon.

    finals: Final by seed, None if its cell failed; score: their mean, None if one failed; rank:
    from 1; fate: promoted, eliminated, finished or failed; error: the first failed cell's.
    """

    candidate: Candidate
    horizon: int
    finals: tuple[float | None, ...]
    score: float | None
    rank: int
    fate: str
    error: str | None

    @property
    def deviation(self) -> float | None:
        """The standard deviation (n - 1) of the score over seeds; None with fewer than two."""
        finals = [value for value in self.finals if value is not None]
        return statistics.stdev(finals) if len(finals) == len(self.finals) > 1 else None


def score(finals: Sequence[float | None]) -> float | None:
    """The mean over seeds of final retention, exactly independent of the order of the seeds.

    finals: one for each seed, None if it failed. None if one failed: the mean over fewer seeds is
    not comparable.
    Source: eq. search-score.
    """
    values = [value for value in finals if value is not None]
    return math.fsum(values) / len(values) if len(values) == len(finals) else None


def rank(scores: Mapping[str, float | None]) -> list[str]:
    """The names of candidates from best to worst, those without a score last.

    scores: in the order in which the space enumerates the candidates, which decides ties.
    """

    def failed_last(name: str) -> float:
        value = scores[name]  # equal means may differ by their rounding
        return math.inf if value is None else -round(value, DECIMALS)

    return sorted(scores, key=failed_last)  # stable, so ties keep their order


class Search:
    """One search in one directory.

    base: the nested values of the recipe that ``recipe.base`` names; overrides: further dotted
    settings of all candidates; store: the directory of the trajectories, None for ``cells`` in the
    study's directory; several studies may share one.

    Raises HoldfastError for a setting that does not exist, an override of a searched setting,
    candidates that learn the same, or a horizon beyond the stream.
    """

    def __init__(
        self,
        recipe: SearchRecipe,
        base: Mapping[str, Any],
        overrides: Iterable[str],
        directory: Path,
        store: Path | None = None,
    ) -> None:
        self.recipe = recipe
        self.directory = directory
        self.store = store or directory / "cells"
        self.candidates = recipe.space.candidates()
        overrides = given_overrides(overrides)
        # The names of all candidates' settings, each once, in the order of the space.
        self._searched = list(
            dict.fromkeys(key for candidate in self.candidates for key in candidate.settings)
        )
        for override in overrides:
            if override.partition("=")[0] in self._searched:
                raise HoldfastError(f"{override}: the space searches this setting; leave it out")
        shared = [*recipe.overrides, *overrides]
        last = recipe.schedule.horizons[-1]
        # One cell for each seed, by the candidate's name.
        self._cells = {
            candidate.name: [
                Cell(
                    candidate.name,
                    RunConfig.of(base, [*shared, *candidate.overrides, f"seed={seed}"]),
                    last,
                )
                for seed in recipe.seeds
            ]
            for candidate in self.candidates
        }
        self._check_distinct()
        first = self._cells[self.candidates[0].name][0].config
        self.device = first.backbone.device  # of all candidates
        self.stream = stream_of(first)
        if last > len(self.stream.tasks):
            raise HoldfastError(
                f"schedule: horizon {last} is beyond the stream, which has "
                f"{len(self.stream.tasks)} tasks; lower the horizons or set stream.tasks=null"
            )

    def _check_distinct(self) -> None:
        first: dict[str, str] = {}
        for name, cells in self._cells.items():
            other = first.setdefault(cells[0].key, name)
            if other != name:
                raise HoldfastError(
                    f'space: "{other}" and "{name}" learn the same, since a method is not changed '
                    "by settings of mechanisms that it lacks; leave them out"
                )

    def settings(self) -> dict[str, Any]:
        """The settings that ``study.json`` records."""
        return {
            "study": "search",
            "schedule": self.recipe.schedule.model_dump(mode="json"),
            "seeds": list(self.recipe.seeds),
            "stream": self.stream.fingerprint,
            "cells": {name: [cell.key for cell in cells] for name, cells in self._cells.items()},
        }

    def _check_recorded(self) -> None:
        """Raise HoldfastError naming the settings of a cell that differ from the recorded cell's.

        ``study.json`` has only the keys of cells, which say nothing to a reader.
        """
        path = self.directory / "study.json"
        recorded = read_format(path) if path.exists() else None
        keys = recorded.get("cells") if isinstance(recorded, dict) else None
        for name, cells in self._cells.items():
            for cell, key in zip(cells, (keys or {}).get(name, ()), strict=False):
                place = self.store / key
                if key != cell.key and is_described(place):
                    values = cell.config.model_dump(mode="json")
                    values["backbone"]["name"] = lasting_name(cell.config.backbone.name)
                    check_same(self.directory, "a study", Description.read(place).config, values)

    def run(
        self, executor: Executor, watch: Watch | None = None, track: str | None = None
    ) -> list[Standing]:
        """Run or resume the search; write leaderboard, trace and cost; return the trace.

        track: the tracker to which workers send their trajectories, grouped by the directory's
        name. A candidate with a failed cell is ranked last and does not stop the search.
        Raises HoldfastError when the directory belongs to another study, or the store holds a cell
        with other settings.
        """
        watch = watch or Watch()
        trace: list[Standing] = []
        self._check_recorded()
        with lock_study(self.directory, self.settings(), self.store):
            going, since = self.candidates, 0
            promotions = [*self.recipe.schedule.sizes(len(going))[1:], None]
            for horizon, count in zip(self.recipe.schedule.horizons, promotions, strict=True):
                cells = with_tracker(track, self.directory, self.cells(going, horizon))
                outcomes = {
                    outcome.cell.key: outcome
                    for outcome in advance(cells, self.stream, self.store, executor, watch, since)
                }
                since = horizon
                standings = self._standings(cells, outcomes, horizon, count)
                trace += standings
                self._write(trace)
                promoted = {row.candidate.name for row in standings if row.fate == "promoted"}
                # Restore the order of the space, which decides ties at the next horizon.
                going = [candidate for candidate in self.candidates if candidate.name in promoted]
                if not going:
                    break
            write_json(self.directory / "cost.json", self.cost(trace))
        return trace

    def cost(self, trace: Sequence[Standing]) -> dict[str, Any]:
        """The cost of the search, and of advancing every candidate to the last horizon.

        tasks: how many tasks the search learned, over all seeds; exhaustive: the same for that
        alternative; seconds: total of the search's tasks.  Source: eq. app-search-cost.
        """
        reached = {standing.candidate.name: standing.horizon for standing in trace}
        seconds: list[float] = []
        for name, horizon in reached.items():
            for cell in self._cells[name]:
                seconds += task_seconds(cell.directory(self.store), horizon)
        exhaustive = self.recipe.schedule.exhaustive(len(self.candidates))
        return {
            "tasks": len(seconds),
            "exhaustive": exhaustive * len(self.recipe.seeds),
            "seconds": math.fsum(seconds),
        }

    def cells(self, candidates: Sequence[Candidate], horizon: int) -> list[Cell]:
        """The cells of these candidates at a horizon, one for each seed."""
        return [
            replace(cell, horizon=horizon)
            for candidate in candidates
            for cell in self._cells[candidate.name]
        ]

    def _standings(
        self,
        cells: Sequence[Cell],
        outcomes: Mapping[str, Outcome],
        horizon: int,
        count: int | None,
    ) -> list[Standing]:
        """The candidates of these cells in ranked order; the best ``count`` are promoted."""
        candidates = {candidate.name: candidate for candidate in self.candidates}
        finals: dict[str, list[float | None]] = {}
        errors: dict[str, str] = {}
        for cell in cells:
            matrix, error = measured(outcomes[cell.key], self.stream, self.store)
            if error is not None:
                errors.setdefault(cell.candidate, error)
            value = None if matrix is None else final(matrix)
            finals.setdefault(cell.candidate, []).append(value)
        scores = {name: score(values) for name, values in finals.items()}
        standings = []
        for place, name in enumerate(rank(scores), start=1):
            if scores[name] is None:
                fate = "failed"
            elif count is None:
                fate = "finished"
            else:
                fate = "promoted" if place <= count else "eliminated"
            by_seed, error = tuple(finals[name]), errors.get(name)
            standings.append(
                Standing(candidates[name], horizon, by_seed, scores[name], place, fate, error)
            )
        return standings

    def _write(self, trace: Sequence[Standing]) -> None:
        write_table(self.directory, "trace", [self._row(standing) for standing in trace])
        reached: dict[str, Standing] = {standing.candidate.name: standing for standing in trace}
        # Sort by the last horizon reached, then by the rank there.
        order = sorted(reached.values(), key=lambda standing: (-standing.horizon, standing.rank))
        rows = [{**self._row(last), "rank": place} for place, last in enumerate(order, start=1)]
        write_table(self.directory, "leaderboard", rows)

    def _row(self, standing: Standing) -> dict[str, Any]:
        finals = zip(self.recipe.seeds, standing.finals, strict=True)
        return {
            "horizon": standing.horizon,
            "rank": standing.rank,
            "candidate": standing.candidate.name,
            "method": standing.candidate.method,
            **{key: standing.candidate.settings.get(key) for key in self._searched},
            "score": standing.score,
            "score_sd": standing.deviation,
            **{f"final_{seed}": value for seed, value in finals},
            "fate": standing.fate,
            "error": standing.error,
        }


def finalists(
    search: Path,
    overrides: Iterable[str],
    seeds: Sequence[int] = SEEDS,
    methods: Sequence[str] | None = None,
) -> list[RunConfig]:
    """The configurations of a search's best candidates, each with every seed.

    search: its directory; overrides: further dotted settings; methods: take the best candidate of
    each of these compositions; None for the best of each allocation rule. The best candidate is the
    one that reached the longest horizon, with the best rank there. The order of tasks is the
    stream's, unless an override says otherwise.
    Raises HoldfastError when the directory holds no finished search, or the search has no
    candidate of a composition.
    Source: app:search-outputs, app:search-order.
    """
    rows: list[dict[str, Any]] = []
    with contextlib.suppress(KeyError, TypeError, HoldfastError):
        study = read_json(search / "study.json")
        if study["study"] == "search":
            leaders = read_json(search / "leaderboard.json")
            rows = [row for row in leaders if row["score"] is not None]
    if not rows:
        raise HoldfastError(f"{search}: holds no search with a leaderboard; finish one there first")
    going = sum(row["fate"] == "promoted" for row in rows)
    if going:
        raise HoldfastError(
            f"{search}: the search has come to horizon {rows[0]['horizon']}, and {going} "
            "candidates go on; finish it first"
        )
    best: dict[str, dict[str, Any]] = {}
    for row in rows:  # the best first
        method = row["method"]
        best.setdefault(method if methods is not None else parse_method(method).allocation, row)
    for tag in methods or ():
        if tag not in best:
            raise HoldfastError(f"{search}: no candidate {tag} has a score; leave it out")
    elsewhere = search / "store.json"
    rows = [best[tag] for tag in (best if methods is None else methods)]
    try:
        store = search / (read_json(elsewhere)["store"] if elsewhere.exists() else "cells")
        places = [store / study["cells"][row["candidate"]][0] for row in rows]
    except (LookupError, TypeError):
        raise HoldfastError(f"{search}: study.json or store.json is damaged; restore it") from None
    configs = []
    for place in places:
        config = Description.read(place).config  # as one of its trajectories records it
        for seed in seeds:
            set_last = ["stream.order_seed=null", *overrides, f"seed={seed}"]
            configs.append(RunConfig.of(config, set_last))
    return configs
