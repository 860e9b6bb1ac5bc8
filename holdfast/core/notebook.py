"""HTML for notebooks, without scripts: tables, captions and heat maps."""

from __future__ import annotations

import base64
import html
import struct
import zlib
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


def heat_map(values: Sequence[Sequence[float | None]], width: int = 320) -> str:
    """An image of shares in [0, 1], one pixel each, white to dark blue; None is transparent.

    values: rows of equal length; width: on the page, in pixels.
    """
    lines = b"".join(b"\0" + b"".join(map(_pixel, row)) for row in values)
    image = _png(len(values[0]), len(values), lines)
    data = base64.b64encode(image).decode()
    style = f"width:{width}px;image-rendering:pixelated;border:1px solid #999"
    return f'<img alt="heat map" style="{style}" src="data:image/png;base64,{data}">'


def _pixel(value: float | None) -> bytes:
    """The RGBA bytes of one value."""
    if value is None:
        return bytes((0, 0, 0, 0))
    dark = (8, 48, 107)
    return bytes((*(round(255 + value * (end - 255)) for end in dark), 255))


def _png(width: int, height: int, lines: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)  # 8 bits a channel, RGBA
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts
