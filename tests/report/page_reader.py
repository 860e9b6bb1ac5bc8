"""A page as a program reads it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from holdfast.analysis.study import Study
from holdfast.analysis.tables import analyse
from holdfast.report.page import render


class Read(HTMLParser):
    """What a browser finds: scripts and styles, headings, texts, addresses, rows of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, Any], str]] = []
        self.styles: list[str] = []
        self.headings: list[str] = []
        self.rows: list[list[str]] = []
        self.addresses: list[str] = []
        self.text = ""
        self.policy = ""
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        self.addresses += [told[name] for name in ("href", "src", "action") if name in told]
        if told.get("http-equiv") == "Content-Security-Policy":
            self.policy = told["content"]
        if tag in ("meta", "link"):
            return
        self._open.append(tag)
        if tag == "script":
            self.scripts.append((told, ""))
        elif tag == "h2":
            self.headings.append("")
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        inside = self._open[-1] if self._open else ""
        if inside == "script":
            told, text = self.scripts[-1]
            self.scripts[-1] = (told, text + data)
        elif inside == "style":
            self.styles.append(data)
        else:
            self.text += data
        if "h2" in self._open:
            self.headings[-1] += data
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0][1])

    def row(self, first: str) -> list[str]:
        return next(row for row in self.rows if row and row[0].strip() == first)


def read(study: Study, path: Path = Path("report.html"), title: str | None = None) -> Read:
    return Read(render(study, analyse(study), path, title=title))
