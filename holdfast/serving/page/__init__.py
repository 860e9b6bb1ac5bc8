"""The page of a served memory: three files."""

from __future__ import annotations

from importlib import resources

_FILES = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css"}


def page_file(path: str) -> str:
    """The text at a path of the page: ``/``, ``/page.js`` or ``/page.css``."""
    return resources.files(__package__).joinpath(_FILES[path]).read_text(encoding="utf-8")
