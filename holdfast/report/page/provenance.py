"""The provenance of a page's results: every run's identity, settings, versions and path."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from holdfast.core.errors import HoldfastError
from holdfast.results import Description

_NAMED_ELSEWHERE = ("method", "seed")  # columns of the table of runs


def provenance(cells: pd.DataFrame, report: Path) -> dict[str, Any]:
    """The template's data on the provenance of the runs.

    cells: the runs on the page; report: the page's path, to whose folder paths are relative. A run
    whose ``config.json`` cannot be read has an empty identity, and the text counts such runs.
    Source: app:implementation.
    """
    configs = [_config(Path(path)) for path in cells["path"]]
    settings = [{} if one is None else dict(_flat(one.config)) for one in configs]
    shared = _shared([one for one in settings if one])
    unread = configs.count(None)
    told = "Every run has an identity: the SHA-256 of all that changes its numbers."
    if unread:
        runs = "one run" if unread == 1 else f"{unread} runs"
        told += f" config.json of {runs} could not be read."
    return {
        "told": told,
        "sources": _sources(configs),
        "runs": [
            {
                "method": row["candidate"],
                "dataset": row["dataset"],
                "seed": row["seed"],
                "horizon": row["horizon"],
                "identity": "" if config is None else config.identity,
                "path": place,
                "link": "./" + quote(place),
            }
            for row, config in zip(cells.to_dict("records"), configs, strict=True)
            for place in [relative(row["path"], report)]
        ],
        "shared": sorted(shared.items()),
        "differing": _differing(cells, settings, shared),
    }


def relative(path: str, report: Path) -> str:
    """A path as seen from the page's folder, with forward slashes; unchanged on another drive."""
    try:
        return Path(os.path.relpath(path, report.parent)).as_posix()
    except ValueError:
        return path


def _config(directory: Path) -> Description | None:
    try:
        return Description.read(directory)
    except HoldfastError:
        return None


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted settings and their values as JSON, except method and seed."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif name and name not in _NAMED_ELSEWHERE:
        yield name, json.dumps(value)


def _shared(settings: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first = settings[0] if settings else {}
    return {
        key: value for key, value in first.items() if all(one.get(key) == value for one in settings)
    }


def _differing(
    cells: pd.DataFrame, settings: Sequence[Mapping[str, str]], shared: Mapping[str, str]
) -> list[dict[str, str]]:
    """The settings of every candidate that are not shared by all runs, without duplicates."""
    lines = [
        (
            str(cell["candidate"]),
            str(cell["dataset"]),
            ", ".join(f"{key} = {value}" for key, value in own.items() if key not in shared),
        )
        for cell, own in zip(cells.to_dict("records"), settings, strict=True)
    ]
    return [
        {"method": method, "dataset": dataset, "settings": text}
        for method, dataset, text in dict.fromkeys(lines)
        if text
    ]


def _sources(configs: Sequence[Description | None]) -> list[dict[str, Any]]:
    """The streams, backbones and versions, each with the number of runs that used it."""
    used: Counter[tuple[str, str]] = Counter()
    for config in configs:
        if config is None:
            continue
        for what, source in (("stream", config.stream), ("backbone", config.backbone)):
            used[what, f"{source['name']}, fingerprint {source['fingerprint']}"] += 1
        versions = ", ".join(f"{key} {value}" for key, value in config.versions.items())
        used["versions", versions] += 1
    order = ("stream", "backbone", "versions")
    ranked = sorted(used.items(), key=lambda one: (order.index(one[0][0]), one[0][1]))
    return [{"what": what, "which": which, "runs": runs} for (what, which), runs in ranked]
