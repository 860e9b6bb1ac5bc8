"""The whole page: one HTML file with its style, its scripts and its numbers inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from holdfast.analysis.study import Study
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_text_atomically
from holdfast.report.page.embedding import by_column, script_json
from holdfast.report.page.provenance import provenance, relative
from holdfast.report.page.view import View, view

# Joined in this order into one script; each file may use what those before it define.
_SCRIPTS = ("plot.js", "matrix.js", "survival.js", "explorer.js", "search.js", "page.js")


def write_page(
    study: Study,
    path: Path,
    *,
    title: str | None = None,
    tables: Mapping[str, pd.DataFrame] | None = None,
) -> Path:
    """Write a study as one HTML file that asks no other file and no server; return its path.

    study: what :func:`holdfast.analysis.study.read_study` gives; title: the data sets unless said;
    tables: more tables to offer as downloads, by name.
    Equal studies at equal places give equal files. Raises HoldfastError for a study without a
    trajectory or a search, or a place that cannot be written.
    Source: app:results.
    """
    write_text_atomically(path, render(study, path, title=title, tables=tables))
    return path


def render(
    study: Study,
    path: Path,
    *,
    title: str | None = None,
    tables: Mapping[str, pd.DataFrame] | None = None,
) -> str:
    """The text of the page that :func:`write_page` writes to ``path``."""
    names = list(dict.fromkeys([*study.cells["dataset"], *study.traces]))
    views = [view(study, name) for name in names]
    if not views:
        raise HoldfastError("the study has no trajectory and no search; run it first")
    carried = {**_tables(study, views, path), **(tables or {})}
    script = "(() => {\n" + "\n".join(_text(name) for name in _SCRIPTS) + "})();\n"
    style = _text("page.css")
    data = {
        "views": [one.script for one in views],
        "tables": {name: by_column(table) for name, table in carried.items()},
    }
    page = _environment().from_string(_text("template.html"))
    return page.render(
        title=title or f"Holdfast: {', '.join(names)}",
        views=[one.text for one in views],
        missing=study.missing,
        provenance=provenance(study.cells, path),
        downloads=[*carried, *(["matrices"] if any(one.script["runs"] for one in views) else [])],
        data=script_json(data),
        script=Markup(script),  # our own files, and named by their hashes
        script_hash=_hash(script),
        style=Markup(style),
        style_hash=_hash(style),
    )


def _tables(study: Study, views: list[View], path: Path) -> dict[str, pd.DataFrame]:
    """The tables behind the page, all data sets below each other."""
    names = dict.fromkeys(name for one in views for name in one.tables)
    tables = {
        name: pd.concat([one.tables[name] for one in views if name in one.tables]) for name in names
    }
    if len(study.cells):
        places = {
            column: [relative(place, path) for place in study.cells[column]]
            for column in ("study", "path")
        }
        tables["cells"] = study.cells.assign(**places)
    return tables


def _environment() -> Environment:
    return Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _text(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a content security policy calls a script or a style: only these two are allowed."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
