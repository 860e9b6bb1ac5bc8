"""The spread over seeds, by data anchor or none and by generation temperature.

Source: app:res-seeds.
"""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from holdfast.analysis.configurations import seed_spread
from holdfast.analysis.study import Study
from holdfast.core.errors import HoldfastError

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
