"""The page of a served memory: three files, of which two begin with what a report's page has."""

from __future__ import annotations

from importlib import resources

_PARTS = {
    "/": ((__package__, "page.html"),),
    "/page.js": (("holdfast.report.page", "plot.js"), (__package__, "page.js")),
    "/page.css": (("holdfast.report.page", "palette.css"), (__package__, "page.css")),
}


def page_file(path: str) -> str:
    """The text at a path of the page: ``/``, ``/page.js`` or ``/page.css``."""
    parts = (resources.files(package) / name for package, name in _PARTS[path])
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)
