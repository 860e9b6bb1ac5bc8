"""Fill a page's template; the page loads no other file."""

from __future__ import annotations

from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def filled(template: str, **values: Any) -> str:
    """The text of a template of this room, in the frame that all pages have."""
    environment = Environment(
        loader=PackageLoader("holdfast.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (resources.files(__package__) / "page.css").read_text("utf-8")
    return environment.get_template(template).render(**values, style=Markup(style))
