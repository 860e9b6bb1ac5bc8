"""The API reference has every public name, and every public name is described."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tests.documentation import PAGES, ROOT, blocks_of

sys.path.insert(0, str(ROOT / "docs" / "_sphinx"))
import api_reference

# Rooms that other rooms import from and users do not.
INTERNAL = {"evaluation"}


def asked_for() -> dict[str, list[str]]:
    """What each page of the reference is to describe, by the page's name."""
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    named = {
        page.stem: [
            name
            for mark in api_reference.MARK.findall(page.read_text("utf-8"))
            for name in mark.split()
        ]
        for page in pages
    }
    return {page: names for page, names in named.items() if names}


def described() -> list[str]:
    """The full name of everything that the reference describes."""
    return [name for asked in asked_for().values() for name in api_reference.described(asked)]


def test_every_room_with_public_names_has_its_place() -> None:
    rooms = {
        f"holdfast.{path.parent.name}"
        for path in (ROOT / "holdfast").glob("*/__init__.py")
        if re.search(r"^__all__", path.read_text("utf-8"), re.MULTILINE)
        and path.parent.name not in INTERNAL
    }
    assert {"holdfast", *rooms} == set(api_reference.MODULES)
    asked = [name for page in asked_for().values() for name in page]
    assert set(api_reference.MODULES) <= set(asked)
    assert len(asked) == len(set(asked))


def names_imported(text: str) -> Iterator[str]:
    """The full names that a program imports from the package."""
    for module, names in re.findall(r"^from (holdfast[\w.]*) import ([\w, ]+)$", text, re.M):
        yield from (f"{module}.{name.strip()}" for name in names.split(","))


def programs() -> Iterator[tuple[str, str]]:
    """Every block of the documentation and every cell of its notebooks, with its page."""
    yield from ((page, block.text) for page in PAGES for block in blocks_of(page))
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                yield notebook.name, "".join(cell["source"])


def test_what_the_documentation_imports_is_in_the_reference() -> None:
    names = set(described())
    values = {id(getattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2])): name
              for name in names}  # fmt: skip
    checked = set()
    for page, text in programs():
        for name in names_imported(text):
            module, _, last = name.rpartition(".")
            checked.add(name)
            if name in names or module.rpartition(".")[2] in ("light", "sums", "tether"):
                continue
            value = getattr(import_module(module), last)
            assert id(value) in values, f"{page} imports {name}, which is in no reference"
    assert {"holdfast.anchors.register", "holdfast.report.plot_noise"} <= checked


def test_every_public_name_is_described() -> None:
    for name in described():
        module, _, last = name.rpartition(".")
        value = getattr(import_module(module), last)
        if api_reference.kind_of(value) == "data":
            assert api_reference.module_of_data(module, last)
            continue
        text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        # A data class without a docstring gets its signature for one.
        assert text and not text.startswith(f"{last}("), name
        for member, of_class in members_of(value) if inspect.isclass(value) else ():
            assert inspect.getdoc(of_class), f"{name}.{member} has no docstring"


def members_of(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that our own classes give a class."""
    for parent in kind.__mro__:
        if parent.__module__.partition(".")[0] != "holdfast":
            continue
        for member, value in vars(parent).items():
            plain = getattr(value, "__func__", value)  # a class method
            field = member in getattr(kind, "__dataclass_fields__", {})
            if not (member.startswith("_") or field) and (
                inspect.isfunction(plain) or isinstance(value, property)
            ):
                yield member, getattr(kind, member)
