"""Studies in memory, for the tests of figures and of the page, and the page as a program reads."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd

from holdfast.analysis.study import Study
from holdfast.report.pages import render
from holdfast.results import METRICS, RecallMatrix, summarise


def fading(tasks: int, retention: float, items: int = 20) -> RecallMatrix:
    """A matrix in which each further task leaves a share ``retention`` of what was known."""
    age = np.subtract.outer(np.arange(tasks), np.arange(tasks)).clip(min=0)
    counts = np.rint(items * retention**age).astype(int)
    matrix = RecallMatrix()
    for after_task, row in enumerate(counts, start=1):
        known = enumerate(row[:after_task], start=1)
        matrix = matrix.with_row(after_task, {task: (correct, items) for task, correct in known})
    return matrix


def study_of(
    matrices: Mapping[tuple[str, int], RecallMatrix],
    dataset: str = "symbol_qa",
    missing: tuple[str, ...] = (),
) -> Study:
    """A study of these matrices, by method and seed; no files."""
    rows, by_path = [], {}
    for (method, seed), matrix in matrices.items():
        path = f"{dataset}/cells/{method}-{seed}"
        metrics = summarise(matrix)
        by_path[path] = matrix
        rows.append(
            {"study": dataset, "dataset": dataset, "method": method, "candidate": method}
            | {"seed": seed, "order_seed": pd.NA, "horizon": matrix.horizon}
            | {name: np.nan if metrics[name] is None else metrics[name] for name in METRICS}
            | {"box_emission": 1.0, "state_bytes": 4000.0}
            | {"searched": False, "path": path}
        )
    cells = pd.DataFrame(rows).astype({"order_seed": "Int64"})
    return Study(cells, by_path, {}, missing)


def together(*studies: Study) -> Study:
    """Several studies as one."""
    return Study(
        pd.concat([study.cells for study in studies], ignore_index=True),
        {path: matrix for study in studies for path, matrix in study.matrices.items()},
        {},
        tuple(line for study in studies for line in study.missing),
    )


class Read(HTMLParser):
    """What a browser finds: elements with their attributes, headings, texts, tables by caption."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.text = ""
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag not in ("meta", "link"):
            self._open.append(tag)
        if attributes.get("role") == "region":
            self._rows = self.tables.setdefault(attributes["aria-label"], [])
        elif tag in ("h2", "h3"):
            self.headings.append("")
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" in self._open:
            return
        self.text += data
        if {"h2", "h3"} & {*self._open}:
            self.headings[-1] += data
        elif {"td", "th"} & {*self._open}:
            self._rows[-1][-1] += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of a name."""
        return [attributes for name, attributes in self.elements if name == tag]

    def records(self, caption: str) -> list[dict[str, str]]:
        """A table's rows by its headings."""
        head, *rows = self.tables[caption]
        return [dict(zip(head, row, strict=True)) for row in rows]


def read(study: Study, path: Path = Path("report.html"), title: str | None = None) -> Read:
    return Read(render(study, path, title=title))
