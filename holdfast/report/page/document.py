"""Write the page: one HTML file with its style, scripts and data inside."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from pathlib import Path

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from holdfast.analysis.study import Study
from holdfast.analysis.tables import Analysis
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_text_atomically
from holdfast.report.page.embedding import by_column, script_json
from holdfast.report.page.finalists import with_finalists
from holdfast.report.page.provenance import provenance, relative
from holdfast.report.page.view import view

# Joined in this order into one script; each file may use the definitions of those before it.
_SCRIPTS = (
    *("plot.js", "matrix.js", "survival.js", "explorer.js", "search.js"),
    *("life.js", "items.js", "page.js"),
)


def write_page(study: Study, analysis: Analysis, path: Path, *, title: str | None = None) -> Path:
    """Write a study as one HTML file that loads no other file and no URL; return its path.

    study: from :func:`holdfast.read_study`; analysis: of that study, from
    :func:`holdfast.analysis.analyse`, whose tables the page offers for download; title:
    None for the names of the data sets.
    Equal studies at equal paths give equal files. Raises HoldfastError for a study without a
    trajectory or a search, or a path that cannot be written.
    Source: app:results.
    """
    write_text_atomically(path, render(study, analysis, path, title=title))
    return path


def render(study: Study, analysis: Analysis, path: Path, *, title: str | None = None) -> str:
    """The text of the page that :func:`write_page` writes to ``path``."""
    names = list(dict.fromkeys([*study.cells["dataset"], *study.traces]))
    if not names:
        raise HoldfastError("the study has no trajectory and no search; run it first")
    analysis = with_finalists(study, analysis)
    views = [view(study, analysis, name) for name in names]
    carried = _tables(study, analysis, path)
    script = "(() => {\n" + "\n".join(_text(name) for name in _SCRIPTS) + "})();\n"
    style = _text("palette.css") + _text("page.css")
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
        script=Markup(script),  # Holdfast's own files, allowed by their hash
        script_hash=_hash(script),
        style=Markup(style),
        style_hash=_hash(style),
    )


def _tables(study: Study, analysis: Analysis, path: Path) -> dict[str, pd.DataFrame]:
    """The tables to download: those of the analysis, the traces of searches, and the cells."""
    tables = dict(analysis.tables)
    if study.traces:
        named = pd.concat(study.traces, names=["dataset"])
        tables["search"] = named.reset_index("dataset")
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
    """The sha256 source of a content security policy, which allows this script or style only."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
