"""Recipes: complete configurations by name, as YAML files beside this one."""

from __future__ import annotations

import difflib
from importlib.resources import files
from typing import Any

import yaml

from holdfast.core.errors import HoldfastError

_FILES = files("holdfast.recipes")


def recipe_names() -> list[str]:
    """The names of all recipes, sorted."""
    names = (entry.name for entry in _FILES.iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def recipe_text(name: str) -> str:
    """A recipe as it is written, comments included; HoldfastError when there is none."""
    known = recipe_names()
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise HoldfastError(
            f'"{name}" is no recipe; did you mean {nearest}? known: {", ".join(known)}'
        )
    return (_FILES / f"{name}.yaml").read_text(encoding="utf-8")


def recipe(name: str) -> dict[str, Any]:
    """The nested values of a recipe, ready for a configuration."""
    values: dict[str, Any] = yaml.safe_load(recipe_text(name))
    return values


def describe(name: str) -> str:
    """The recipe's first line, a comment that says what it is for."""
    return recipe_text(name).partition("\n")[0].removeprefix("#").strip()
