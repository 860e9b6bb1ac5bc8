"""HTML for notebooks, without scripts: tables, captions and heat maps."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; headings and cells are escaped."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def caption(text: str) -> str:
    """A line of text above a table or a picture."""
    return f"<div>{html.escape(text)}</div>"


def heat_map(values: Sequence[Sequence[float | None]]) -> str:
    """An image of rows of shares in [0, 1], one pixel each, white to dark blue.

    None is transparent.
    """
    import numpy as np
    from matplotlib.image import imsave

    image = io.BytesIO()
    shares = np.array(values, dtype=float)  # None becomes nan, which has no colour
    imsave(image, shares, format="png", cmap="Blues", vmin=0, vmax=1)
    data = base64.b64encode(image.getvalue()).decode()
    style = "width:320px;image-rendering:pixelated;border:1px solid #999"
    return f'<img alt="heat map" style="{style}" src="data:image/png;base64,{data}">'
