"""`holdfast recipes`: the included configurations."""

from __future__ import annotations

from typing import Annotated

from typer import Argument

from holdfast.recipes import describe, recipe_names, recipe_text


def recipes(
    name: Annotated[str | None, Argument(help="Print this recipe as YAML.")] = None,
) -> None:
    """List the recipes, or print one."""
    if name is not None:
        print(recipe_text(name), end="")
        return
    names = recipe_names()
    width = max(map(len, names))
    for recipe in names:
        print(f"{recipe:<{width}}  {describe(recipe)}")
