"""Writes the public names of a module, from their docstrings, where a page has its mark.

A mark is ``<!-- names: MODULE -->`` for all that a module lists in ``__all__``, or
``<!-- names: MODULE.NAME ... -->`` for single ones.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

MARK = re.compile(r"<!-- names: ([\w.\s]+) -->")
# A name that several export is described where the first does.
MODULES = (
    "holdfast",
    "holdfast.anchors",
    "holdfast.allocation",
    "holdfast.integrations",
    "holdfast.streams",
    "holdfast.results",
    "holdfast.analysis",
    "holdfast.report",
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Begin to listen."""
    app.connect("source-read", replace_marks)
    app.connect("autodoc-process-docstring", lay_out)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-skip-member", leave_out)
    return {"parallel_read_safe": True}


def replace_marks(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Replace each mark by a directive a name."""
    source[0] = MARK.sub(lambda mark: "\n\n".join(directives(mark[1].split())), source[0])


def directives(asked: list[str]) -> Iterator[str]:
    """What autodoc is to describe, each as a block of reStructuredText."""
    elsewhere = []
    for full in described(asked):
        module, _, name = full.rpartition(".")
        home = home_of(module, name)
        if home != module:
            elsewhere.append(f"{{py:obj}}`~{home}.{name}`")
            continue
        kind = kind_of(getattr(import_module(module), name))
        place = full if kind != "data" else f"{module_of_data(module, name)}.{name}"
        options = ["   :no-value:"] if kind == "data" else []
        yield "\n".join(["```{eval-rst}", f".. auto{kind}:: {place}", *options, "```"])
    if elsewhere:
        yield f"Described elsewhere: {', '.join(elsewhere)}."


def described(asked: list[str]) -> list[str]:
    """The full names that a mark stands for."""
    found = []
    for one in asked:
        if one in MODULES:
            found += [f"{one}.{name}" for name in import_module(one).__all__]
        else:
            found.append(one)
    return found


def home_of(module: str, name: str) -> str:
    """The module under which a name is described."""
    value = getattr(import_module(module), name)
    exporting = (other for other in MODULES if name in import_module(other).__all__)
    same = (other for other in exporting if getattr(import_module(other), name) is value)
    return next(same, module)


def module_of_data(package: str, name: str) -> str:
    """The module of a package that describes a value, in a comment ``#:`` above it."""
    inside = iter_modules(import_module(package).__path__, f"{package}.")
    for module in (package, *(one.name for one in inside)):
        if ("", name) in ModuleAnalyzer.for_module(module).find_attr_docs():
            return module
    raise LookupError(f"{package}.{name} has no description; write one above it, after #:")


def kind_of(value: Any) -> str:
    """Autodoc's word for a value."""
    if inspect.isclass(value):
        return "exception" if issubclass(value, Exception) else "class"
    return "function" if inspect.isfunction(value) else "data"


def leave_out(_app: Sphinx, _what: str, name: str, value: Any, *_: Any) -> bool | None:
    """Leave out settings, which have a page of their own, and fields of tuples and data classes.

    A field that has a function or a class for its default would look like a method.
    """
    settings = name in ("Config", "model_config")
    default = getattr(value, "__name__", "") == "<lambda>" or value is dict
    return True if settings or default or type(value).__name__ == "_tuplegetter" else None


def shorten(
    _app: Sphinx, what: str, _name: str, value: Any, _options: Any, given: str | None, back: str
) -> tuple[str, str] | None:
    """No signature for settings, and dots for a default that is no Python."""
    if what == "class" and issubclass(value, BaseModel):
        return "", ""
    if not given:
        return None
    given = re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", given)
    return re.sub(r"<(?:[^<>]|<\w+>)*>", "...", given), back


def lay_out(
    _app: Sphinx, _what: str, _name: str, value: Any, _options: Any, lines: list[str]
) -> None:
    """Set the ``name: what it is`` of a docstring as a list, its source and raises apart."""
    known = names_in(value)
    if lines and lines[0].startswith("Create a new model"):
        lines.clear()  # pydantic's words on __init__
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip())
    lines[:] = "\n\n".join(laid_out(text, known) for text in paragraphs).split("\n")
    lines.append("")


def names_in(value: Any) -> set[str]:
    """The arguments or fields that a docstring may describe."""
    known = set(getattr(value, "__annotations__", {})) if inspect.isclass(value) else set()
    if inspect.isclass(value):
        known |= {name for name in dir(value) if not name.startswith("_")}
        value = value.__init__
    try:
        return known | set(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return known


def laid_out(paragraph: str, known: set[str]) -> str:
    """A paragraph, of which each described name and each closing remark stands on its own."""
    if paragraph.startswith((" ", "..", "- ", "* ")):
        return paragraph
    one = "|".join(sorted(map(re.escape, known), key=len, reverse=True)) or "(?!)"
    names = rf"(?:{one})(?:, (?:{one}))*"
    flat = " ".join(paragraph.split("\n"))
    parts = re.split(rf"(?<=[.;:]) (?={names}: |Raises |Source: |Gives )", flat)
    found: list[str] = []
    for part in parts:
        text = re.sub(rf"^({names}): ", r"- **\1**: ", part.removesuffix(";"))
        found.append(re.sub(r"^Source: ", "*Source*: ", text))
    return "\n\n".join(found)
