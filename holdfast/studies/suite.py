"""A suite: several methods and settings, each with every seed, advanced to one horizon.

Source: sec:results.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.config import given_settings, sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json
from holdfast.core.mechanisms import name_with_settings
from holdfast.learning.config import RunConfig
from holdfast.learning.stream import stream_of
from holdfast.results import METRICS, summarise
from holdfast.results.record import flat
from holdfast.studies.directory import advance, lock_study, measured, write_table
from holdfast.studies.executor import Cell, Executor, Outcome, Watch, with_tracker
from holdfast.studies.recipe import override

# Settings that may differ between the cells of a suite, or that change no result.
_NOT_SHARED = (
    *("method", "seed", "keep", "stream.tasks", "backbone.device", "backbone.checkpointing"),
    *("evaluation.capability", "evaluation.capability_every", "evaluation.items"),
    *("evaluation.tokens_per_batch", "sampling.batch", "sampling.keep"),
)


class Suite:
    """One suite in one directory.

    configs: one for each method and seed; store: the directory of the trajectories, None for
    ``cells`` in the directory; several studies may share one. horizon: tasks to learn, None for
    the whole stream; search: the directory of the search that chose the settings of each method,
    None if all methods have the same; swept: the dotted settings in which configurations of one
    method may differ. Those that differ only in settings that the method does not use are one cell.

    Raises HoldfastError for a horizon beyond the stream, and a swept setting that no method uses.
    """

    def __init__(
        self,
        configs: Sequence[RunConfig],
        directory: Path,
        store: Path | None = None,
        horizon: int | None = None,
        search: Path | None = None,
        swept: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.store = store or directory / "cells"
        self._search = search
        self.device = configs[0].backbone.device  # of all cells
        self.stream = stream_of(configs[0])
        self.horizon = len(self.stream.tasks) if horizon is None else horizon
        if not 1 <= self.horizon <= len(self.stream.tasks):
            raise HoldfastError(
                f"horizon {self.horizon} is not within the stream, which has "
                f"{len(self.stream.tasks)} tasks"
            )
        self.swept = tuple(given_settings(dict.fromkeys(swept)))
        # By method, as an identity may leave out a setting that has its default.
        self._using = {
            (config.method, key)
            for config in configs
            for key in _used_by(config).keys() & {*self.swept}
        }
        cells = [
            Cell(name_with_settings(config.method, self._swept_of(config)), config, self.horizon)
            for config in configs
        ]
        self.cells = list({cell.key: cell for cell in cells}.values())
        used = {key for _, key in self._using}
        for key in self.swept:
            if key not in used:
                raise HoldfastError(
                    f"grid: {key} changes no result of these methods, or has its default alone; "
                    "leave it out"
                )

    def settings(self) -> dict[str, Any]:
        """The settings for ``study.json``.

        Without horizon, methods, seeds and the values of a grid: these may grow.
        """
        settings: dict[str, Any] = {"study": "suite", "stream": self.stream.name}
        if self._search is not None:
            return settings | {"search": sha256_of(read_json(self._search / "study.json"))}
        shared = self.cells[0].config.model_dump(mode="json")
        for key in (*_NOT_SHARED, *self.swept, *(f"plugins.{key}" for key in self.swept)):
            *sections, last = key.split(".")
            section = shared
            for name in sections:
                section = section.get(name, {})
            section.pop(last, None)
        return settings | {"settings": shared}

    def _swept_of(self, config: RunConfig) -> dict[str, Any]:
        """The swept settings that a configuration's method uses, with their values."""
        values = flat(config.model_dump(mode="json")) | _used_by(config)
        used = [key for key in self.swept if (config.method, key) in self._using]
        return {key: values[key] for key in used if key in values}

    def run(
        self, executor: Executor, watch: Watch | None = None, track: str | None = None
    ) -> list[dict[str, Any]]:
        """Advance every cell; write ``cells`` and ``summary``, CSV and JSON; return its cells.

        track: the tracker to which workers send their trajectories, grouped by the directory's
        name. The tables keep the methods and seeds of earlier calls. A cell that fails has its
        error in the table and does not stop the others.
        Raises HoldfastError when the directory belongs to another study, or the store holds a cell
        with other settings.
        """
        outcomes: dict[str, Outcome] = {}
        cells = with_tracker(track, self.directory, self.cells)
        with lock_study(self.directory, self.settings(), self.store):
            for outcome in advance(cells, self.stream, self.store, executor, watch or Watch()):
                outcomes[outcome.cell.key] = outcome
            rows = [self._row(cell, outcomes[cell.key]) for cell in self.cells]
            path = self.directory / "cells.json"
            names = {cell.key: cell.candidate for cell in self.cells}
            earlier = [
                row
                for row in (read_json(path) if path.exists() else [])
                if names.get(row["cell"], _candidate(row)) == _candidate(row)
            ]
            by_seed = {(_candidate(row), row["seed"]): row for row in [*earlier, *rows]}
            write_table(self.directory, "cells", [*by_seed.values()])
            write_table(self.directory, "summary", summary([*by_seed.values()]))
        return rows

    def _row(self, cell: Cell, outcome: Outcome) -> dict[str, Any]:
        matrix, error = measured(outcome, self.stream, self.store)
        metrics: Mapping[str, Any] = {} if matrix is None else summarise(matrix)
        settings = self._swept_of(cell.config)
        swept = {"candidate": cell.candidate, **{key: settings.get(key) for key in self.swept}}
        return {
            "method": cell.config.method,
            **(swept if self.swept else {}),
            "seed": cell.config.seed,
            "horizon": cell.horizon,
            **{name: metrics.get(name) for name in METRICS},
            "cell": cell.key,
            "error": error,
        }


def configurations(
    methods: Iterable[str],
    seeds: Sequence[int],
    base: Mapping[str, Any],
    overrides: Iterable[str],
    grid: Mapping[str, Sequence[Any]] | None = None,
) -> list[RunConfig]:
    """The configuration of each method at each point of the grid with each seed.

    methods: tags; base: nested values of the base recipe; overrides: dotted settings of all; grid:
    dotted settings with their values.
    Raises HoldfastError for a setting that does not exist.
    """
    shared, grid = list(overrides), grid or {}
    points = [
        [override(*pair) for pair in zip(grid, values, strict=True)]
        for values in itertools.product(*grid.values())
    ]
    return [
        RunConfig.of(base, [*shared, *point, f"method={method}", f"seed={seed}"])
        for method in methods
        for point in points
        for seed in seeds
    ]


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation (n - 1) over seeds of each metric, by settings and horizon.

    rows: of a suite; failed cells are counted and left out. A deviation needs two seeds.
    """
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((_candidate(row), row["horizon"]), []).append(row)
    table = []
    for (_, horizon), group in groups.items():
        finished = [row for row in group if row["error"] is None]
        settings = list(group[0])[: list(group[0]).index("seed")]  # method, candidate, swept
        line: dict[str, Any] = {key: group[0][key] for key in settings} | {"horizon": horizon}
        line |= {"seeds": len(finished), "failed": len(group) - len(finished)}
        for name in METRICS:
            values = [row[name] for row in finished if row[name] is not None]
            whole = len(values) == len(finished) > 0
            line[name] = statistics.fmean(values) if whole else None
            line[f"{name}_sd"] = statistics.stdev(values) if whole and len(values) > 1 else None
        table.append(line)
    return sorted(table, key=lambda line: -(line["final"] if line["final"] is not None else -1))


def _candidate(row: Mapping[str, Any]) -> str:
    """The method of a row, with the settings of a sweep."""
    return str(row.get("candidate", row["method"]))


def _used_by(config: RunConfig) -> dict[str, Any]:
    """The settings that a method uses, dotted, with those of the backbone.

    Those of a plug-in are there under ``plugins`` too, where a configuration has them.
    """
    numbers, backbone = config.numbers(), config.backbone.model_dump(mode="json")
    return flat(numbers | numbers["plugins"] | {"backbone": backbone})
