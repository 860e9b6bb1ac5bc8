"""Recipes: complete configurations by name, as YAML files beside this one."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Literal

import yaml

from holdfast.core.errors import HoldfastError, did_you_mean

_FILES = files("holdfast.recipes")

Study = Literal["search", "suite"]


def recipe_names() -> list[str]:
    """The names of all recipes, sorted."""
    names = (entry.name for entry in _FILES.iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def recipe_text(name: str) -> str:
    """A recipe as it is written, comments included; HoldfastError when there is none."""
    known = recipe_names()
    if name not in known:
        raise HoldfastError(f'"{name}" is no recipe; {did_you_mean(name, known)}')
    return (_FILES / f"{name}.yaml").read_text(encoding="utf-8")


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


def study_names(kind: Study) -> list[str]:
    """The names of all recipes for searches, or for suites, sorted."""
    names = (entry.name for entry in (_FILES / kind).iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def study_text(kind: Study, name: str) -> str:
    """A study's recipe as it is written, its first line a comment that says what it is for.

    Raises HoldfastError when there is none of that name.
    """
    known = study_names(kind)
    if name not in known:
        raise HoldfastError(f'"{name}" is no recipe for a {kind}; {did_you_mean(name, known)}')
    return (_FILES / kind / f"{name}.yaml").read_text(encoding="utf-8")


def study(kind: Study, name: str) -> dict[str, Any]:
    """The nested values of a study's recipe; raises as `study_text`."""
    values: dict[str, Any] = yaml.safe_load(study_text(kind, name))
    return values
