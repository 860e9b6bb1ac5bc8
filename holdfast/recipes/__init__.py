"""Recipes: complete configurations by name, as YAML files beside this one."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Literal

import yaml

from holdfast.core.errors import HoldfastError, did_you_mean

_FILES = files("holdfast.recipes")

Study = Literal["search", "suite"]


def recipe_names(kind: Study | None = None) -> list[str]:
    """The names of all recipes for runs, for searches or for suites, sorted."""
    names = (entry.name for entry in _FILES.joinpath(kind or "").iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def recipe_text(name: str, kind: Study | None = None) -> str:
    """A recipe as it is written, comments included; HoldfastError when there is none."""
    known = recipe_names(kind)
    if name not in known:
        what = f"recipe for a {kind}" if kind else "recipe"
        raise HoldfastError(f'"{name}" is no {what}; {did_you_mean(name, known)}')
    return _FILES.joinpath(kind or "", f"{name}.yaml").read_text(encoding="utf-8")


def recipe(name: str, dataset: str | None = None) -> dict[str, Any]:
    """The nested values of a recipe, ready for a configuration.

    dataset: apply the recipe's special settings for the data set of this name, if it has any.
    """
    return on_dataset(yaml.safe_load(recipe_text(name)), dataset)


def on_dataset(values: dict[str, Any], dataset: str | None) -> dict[str, Any]:
    """Apply the settings of one data set from the section ``datasets``; drop the section."""
    values = dict(values)
    own = (values.pop("datasets", None) or {}).get(dataset, {})
    for section, settings in own.items():
        values[section] = {**values.get(section, {}), **settings}
    return values


def describe(name: str) -> str:
    """The recipe's first line, a comment that says what it is for."""
    return recipe_text(name).partition("\n")[0].removeprefix("#").strip()


def study(kind: Study, name: str) -> dict[str, Any]:
    """The nested values of a study's recipe; raises as `recipe_text`."""
    values: dict[str, Any] = yaml.safe_load(recipe_text(name, kind))
    return values
