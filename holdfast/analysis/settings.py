"""Two settings of one method told apart: by the settings in which its trajectories differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.config import as_override
from holdfast.core.errors import HoldfastError, did_you_mean

_OF_THE_RUN = ("method", "seed", "stream")


def settings_of(numbers: Any, backbone: str) -> dict[str, Any]:
    """A trajectory's dotted settings that change its results, without method, seed and stream.

    numbers: of its config.json; backbone: the name that stands for the fingerprint there.
    """
    values = dict(numbers) if isinstance(numbers, Mapping) else {}
    values |= values.pop("plugins", {})  # of which each is a section, as a user writes it
    if "backbone" in values:
        values["backbone"] = {"name": backbone, "fingerprint": values["backbone"]}
    return _flat({key: value for key, value in values.items() if key not in _OF_THE_RUN})


def tell_apart(rows: Sequence[dict[str, Any]]) -> None:
    """Add to ``method`` and ``candidate`` the settings in which runs of one method differ.

    rows: with ``settings``; those of a search have their candidate already and stay as they are.
    Where all runs of a method on a data set share their settings, the tag alone is its name;
    otherwise it is ``merge optim.lr=0.001``, with every setting in which any two of them differ.
    """
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in (row for row in rows if not row["searched"]):
        groups.setdefault((row["dataset"], row["order_seed"], row["method"]), []).append(row)
    for group in groups.values():
        differing = _differing([row["settings"] for row in group])
        for row in group:
            row["method"] = row["candidate"] = named(
                row["method"],
                {key: row["settings"][key] for key in differing if key in row["settings"]},
            )


def named(method: str, settings: Mapping[str, Any]) -> str:
    """``merge optim.lr=0.001``: a tag and dotted settings, as tables have them."""
    return " ".join((method, *(as_override(*pair) for pair in settings.items())))


def chosen(
    rows: Sequence[dict[str, Any]], where: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows whose settings are those of ``where``, and a line on the others if there are any.

    A run whose method does not use a setting (``si.strength`` of vanilla) is kept.
    Raises HoldfastError for a setting that no run has, or that leaves no run.
    """
    known = sorted({key for row in rows for key in row["settings"]})
    for key, value in where.items():
        if key not in known:
            raise HoldfastError(f"{key}: no run has that setting; {did_you_mean(key, known)}")
        values = [row["settings"][key] for row in rows if key in row["settings"]]
        if value not in values:
            there = ", ".join(sorted({as_override(key, one) for one in values}))
            raise HoldfastError(f"{as_override(key, value)}: no run has that, but {there}")
    kept = [row for row in rows if _agrees(row["settings"], where)]
    left = len(rows) - len(kept)
    told = named("", where).strip()
    return kept, [f"{left} trajectories: left out, as they do not have {told}"] if left else []


def _agrees(settings: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    return all(key not in settings or settings[key] == value for key, value in where.items())


def _differing(every: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values differ; a backbone of other weights is told by its name if it can."""
    keys = dict.fromkeys(key for settings in every for key in settings)
    found = []
    for key in keys:
        values = [settings[key] for settings in every if key in settings]  # a run may be older
        if any(value != values[0] for value in values):
            found.append(key)
    if "backbone.fingerprint" not in found:  # the same weights under two names
        return [key for key in found if key != "backbone.name"]
    if "backbone.name" in found:
        found.remove("backbone.fingerprint")
    return found


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
