"""Writes the settings of RunConfig into docs/reference/configuration.md when the site is built."""

import inspect
import json
import re
from typing import Any, Literal, get_args, get_origin

from api_reference import laid_out
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.application import Sphinx

MARK = "<!-- settings -->"
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def setup(app: Sphinx) -> dict[str, bool]:
    """Begin to listen."""
    app.connect("source-read", replace_mark)
    return {"parallel_read_safe": True}


def replace_mark(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Replace the mark by one table a section."""
    if MARK in source[0]:
        from holdfast.learning.config import RunConfig

        source[0] = source[0].replace(MARK, "\n\n".join(sections(RunConfig)))


def sections(kind: type[BaseModel], prefix: str = "") -> list[str]:
    """The tables of a configuration, and of every configuration inside it."""
    rows, inner = [], []
    comments = comments_of(kind)
    for name, field in kind.model_fields.items():
        key = f"{prefix}{name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            inner += sections(field.annotation, f"{key}.")
            continue
        default = json.dumps(field.get_default(call_default_factory=True))
        cells = [f"`{key}`", permitted(field), f"`{default}`", comments.get(name, "")]
        rows.append(cells)
    title = f"## `{prefix.removesuffix('.')}`" if prefix else "## The trajectory"
    text = prose(kind)
    return [title, *([text] if text else []), *([table(rows)] if rows else []), *inner]


def table(rows: list[list[str]]) -> str:
    """A table of settings; without the last column where no setting has a comment."""
    columns = 4 if any(row[3] for row in rows) else 3
    lines = [["key", "takes", "default", ""], ["---"] * 4, *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line[:columns]) + " |"
        for line in lines
    )


def prose(kind: type[BaseModel]) -> str:
    """The docstring of a configuration, as Markdown: its ``name: ...`` lines become a list."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(kind.__doc__ or ""))
    return "\n\n".join(laid_out(text, set(kind.model_fields)) for text in paragraphs)


def permitted(field: FieldInfo) -> str:
    """The values that a setting takes."""
    bounds = [
        f"{sign} {getattr(rule, name)}"
        for rule in field.metadata
        for name, sign in BOUNDS.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join([described(field.annotation), *bounds])


def described(annotation: Any) -> str:
    """A type as a reader of YAML would call it."""
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    parts = get_args(annotation)
    if parts and type(None) in parts:
        return " or ".join([described(part) for part in parts if part is not type(None)] + ["null"])
    if parts and get_origin(annotation) is not None and not isinstance(annotation, type):
        if get_origin(annotation) in (tuple, list):
            return f"list of {described(parts[0])}"
        if get_origin(annotation) is dict:
            return "mapping"
        return " or ".join(described(part) for part in parts)
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return names.get(annotation, str(getattr(annotation, "__name__", annotation)))


def comments_of(kind: type[BaseModel]) -> dict[str, str]:
    """The comment beside each field, inherited ones too: the paper's letter, the unit."""
    comments: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if issubclass(parent, BaseModel) and parent is not BaseModel:
            for line in inspect.getsource(parent).splitlines():
                if match := re.match(r"\s+(\w+): .*?  # (.+)$", line):
                    comments[match[1]] = match[2]
    return comments
