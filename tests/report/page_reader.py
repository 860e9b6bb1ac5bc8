"""A page as a program reads it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from holdfast.analysis.study import Study
from holdfast.report.page import render


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
        told = dict(attrs)
        self.elements.append((tag, told))
        if tag not in ("meta", "link"):
            self._open.append(tag)
        if told.get("role") == "region":
            self._rows = self.tables.setdefault(told["aria-label"], [])
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
        return [told for name, told in self.elements if name == tag]

    def records(self, caption: str) -> list[dict[str, str]]:
        """A table's rows by its headings."""
        head, *rows = self.tables[caption]
        return [dict(zip(head, row, strict=True)) for row in rows]


def read(study: Study, path: Path = Path("report.html"), title: str | None = None) -> Read:
    return Read(render(study, path, title=title))
