"""Warns of every page that loads something from elsewhere: a font, a script, a style, an image."""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//"""
    r"""|<link\b[^>]*\brel=["']?(?:stylesheet|preload|preconnect)[^>]*\bhref=["']?(?:https?:)?//"""
    r"""|@import\b[^;]*//|\burl\(["']?(?:https?:)?//"""
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Look when all is written."""
    app.connect("build-finished", look)
    return {"parallel_write_safe": True}


def look(app: Sphinx, _error: Exception | None) -> None:
    """Warn, which the build takes for an error."""
    logger = logging.getLogger(__name__)
    for file in sorted(Path(app.outdir).rglob("*")):
        if file.suffix in {".html", ".css"}:
            for found in ELSEWHERE.finditer(file.read_text("utf-8")):
                place = file.relative_to(app.outdir)
                logger.warning("%s loads from elsewhere: %s", place, found[0][:120])
