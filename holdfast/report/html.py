"""Fill the template of a page that loads no other file."""

from __future__ import annotations

from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render_template(template: str, **values: Any) -> str:
    """Render one of this package's templates, with the style that all pages share."""
    environment = Environment(
        loader=PackageLoader("holdfast.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (resources.files(__package__) / "page.css").read_text("utf-8")
    return environment.get_template(template).render(**values, style=Markup(style))
