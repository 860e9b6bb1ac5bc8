"""Tables of single runs: acquisition, controls, and the spread over seeds.

Source: app:res-controls, tab:dataset-summary, app:res-seeds.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from holdfast.analysis.configurations import seed_spread
from holdfast.analysis.study import Study, final_runs
from holdfast.core.errors import HoldfastError
from holdfast.results import RecallMatrix, box_emission
from holdfast.results.metrics import TIE

GATE = 0.96  # every other configuration of the paper holds Diag between 96 and 100


def acquisition(cells: pd.DataFrame, gate: float = GATE) -> pd.DataFrame:
    """The methods with Diag below the gate for at least one seed, the lowest mean first.

    cells: of a study; only those that :func:`holdfast.analysis.study.final_runs` selects count.
    gate: share in [0, 1]. Columns: ``dataset``, ``method``, ``diag`` (mean over all seeds),
    ``diag_sd`` (n - 1, NaN for one seed), ``lowest``, ``seeds`` (how many) and ``below`` (the seeds
    that fail, increasing, such as ``41, 43``); empty if all methods pass. A Diag is undefined if
    not every row was observed; it neither passes nor fails and makes the mean NaN.
    Raises HoldfastError for a method and seed that occurs twice, and if no Diag is below the gate
    but some is undefined, because then it is unknown whether all methods pass.
    Source: app:res-failures.
    """
    columns = ["dataset", "method", "diag", "diag_sd", "lowest", "seeds", "below"]
    runs = final_runs(cells)
    rows = []
    for (dataset, method), part in runs.groupby(["dataset", "method"], sort=False):
        failing = sorted(part.loc[part["diag"] < gate - TIE, "seed"])
        if failing:
            diag = part["diag"]
            values = (
                diag.mean(skipna=False),
                diag.std(skipna=False),
                diag.min(),
                len(part),
                ", ".join(map(str, failing)),
            )
            rows.append((dataset, method, *values))
    unknown = runs[runs["diag"].isna()]
    if not rows and len(unknown):
        run = unknown.iloc[0]
        raise HoldfastError(
            f"{run['dataset']}: Diag of {run['method']} with seed {run['seed']} is not defined; "
            "it needs every row (evaluation.rows=every)"
        )
    return pd.DataFrame(rows, columns=columns).sort_values("diag", ignore_index=True)


def controls(study: Study) -> pd.DataFrame:
    """Forward transfer and box emission of every method, means over seeds, as shares.

    Columns: ``dataset``, ``method``, ``seeds``, ``forward_transfer``, ``forward_transfer_sd``
    (n - 1, NaN for one seed), ``box_emission_diagonal`` (right after a task) and ``box_emission``
    (of all tasks after the last); NaN if a seed's value was not observed.
    Raises HoldfastError for a method and seed that occurs twice.
    Source: app:res-controls.
    """
    runs = final_runs(study.cells)
    diagonal = [box_emission(study.matrices[path])["diagonal"] for path in runs["path"]]
    runs = runs.assign(box_emission_diagonal=diagonal)
    groups = runs.groupby(["dataset", "method"], sort=False)
    table = groups.agg(seeds=("seed", "size"))
    for name in ("forward_transfer", "box_emission_diagonal", "box_emission"):
        whole = groups[name].count() == table["seeds"]
        table[name] = groups[name].mean().where(whole)
        if name == "forward_transfer":
            table[f"{name}_sd"] = groups[name].std().where(whole)
    return table.reset_index()


def datasets(study: Study) -> pd.DataFrame:
    """The size of each data set as far as it was learned, and the size of the study on it.

    Columns: ``dataset``, ``tasks`` (of the run that learned most), ``items`` (in all these tasks),
    ``items_least`` and ``items_most`` (in one task), ``methods`` and ``runs``.
    Source: tab:dataset-summary.
    """
    rows = []
    for dataset, runs in final_runs(study.cells).groupby("dataset", sort=False):
        sizes = max((_sizes(study.matrices[path]) for path in runs["path"]), key=len)
        if not sizes:
            continue
        row = {"dataset": dataset, "tasks": len(sizes), "items": sum(sizes)}
        row |= {"items_least": min(sizes), "items_most": max(sizes)}
        rows.append(row | {"methods": runs["method"].nunique(), "runs": len(runs)})
    columns = ["dataset", "tasks", "items", "items_least", "items_most", "methods", "runs"]
    return pd.DataFrame(rows, columns=columns)


def _sizes(matrix: RecallMatrix) -> list[int]:
    """The number of items of each learned task."""
    sizes = {task: entry.items for after, task, entry in matrix.entries() if after >= task}
    return list(sizes.values())


_TEMPERATURE = re.compile(r" sampling\.temperature=(\S+)")


def spread_groups(cells: pd.DataFrame) -> pd.DataFrame:
    """Summary of ``seed_spread`` with the data anchor and without.

    Columns: ``dataset``, ``data_anchor``, ``methods`` (how many), and ``median``, ``lowest`` and
    ``highest`` of their deviations.
    Source: app:res-seeds.
    """
    groups = seed_spread(cells).groupby(["dataset", "data_anchor"], sort=False)["final_sd"]
    table = groups.agg(methods="size", median="median", lowest="min", highest="max")
    return table.reset_index()


def temperature_control(study: Study) -> pd.DataFrame:
    """Final retention of candidates that differ only in replay's generation temperature.

    study: with a search over ``sampling.temperature``. Candidates are compared at the longest
    horizon that any of them reached; those eliminated before are left out.
    Columns: ``dataset``, ``method``, ``settings`` (the other searched ones), ``temperature``,
    ``horizon``, ``final``, ``final_sd`` (n - 1), ``lowest``, ``highest`` and ``seeds``; empty if
    nothing can be compared. A fair comparison needs the same seeds at every temperature.
    Raises HoldfastError if one of the temperatures lacks a seed of another.
    Source: app:res-seeds.
    """
    rows: list[dict[str, Any]] = []
    for group, part in _searched(study.cells).groupby(_SAME, sort=False):
        part = part[part["horizon"] == part["horizon"].max()]
        if part["temperature"].nunique() > 1:
            _refuse_unpaired(part)
            rows += _temperatures(dict(zip(_SAME, group, strict=True)), part)
    columns = ["dataset", "method", "settings", "temperature", "horizon"]
    columns += ["final", "final_sd", "lowest", "highest", "seeds"]
    return pd.DataFrame(rows, columns=columns)


_SAME = ["study", "dataset", "method", "settings"]


def _searched(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells with a searched temperature, with ``temperature`` and the other ``settings``."""
    matches = [_TEMPERATURE.search(candidate) for candidate in cells["candidate"]]
    part = cells.loc[pd.Series([match is not None for match in matches], cells.index, dtype=bool)]
    temperatures = [float(match[1]) for match in matches if match]
    others = [_TEMPERATURE.sub("", candidate) for candidate in part["candidate"]]
    settings = [text.partition(" ")[2] for text in others]
    return part.assign(temperature=temperatures, settings=settings)


def _refuse_unpaired(part: pd.DataFrame) -> None:
    seeds = part.groupby("temperature")["seed"].agg(list)
    everyone = sorted(set(part["seed"]))
    for temperature, its_seeds in seeds.items():
        if sorted(its_seeds) != everyone:
            seed = next(seed for seed in everyone if its_seeds.count(seed) != 1)
            line = part.iloc[0]
            raise HoldfastError(
                f"{line['dataset']}: {line['method']} at generation temperature {temperature} has "
                f"{its_seeds.count(seed)} cells with seed {seed}, not one; finish the search, or "
                "leave that seed out of all"
            )


def _temperatures(same: dict[str, Any], part: pd.DataFrame) -> list[dict[str, Any]]:
    groups = part.groupby("temperature")
    table = groups.agg(
        horizon=("horizon", "first"),
        final=("final", "mean"),
        final_sd=("final", "std"),
        lowest=("final", "min"),
        highest=("final", "max"),
        seeds=("seed", "size"),
    )
    labels = {key: value for key, value in same.items() if key != "study"}
    return [labels | row for row in table.reset_index().to_dict("records")]
