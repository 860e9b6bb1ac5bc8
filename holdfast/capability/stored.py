"""Files that grow line by line, read after whatever killed their writer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.core.files import cut, read_bytes

_Line = TypeVar("_Line")


def stored_lines(path: Path, read: Callable[[Any], _Line]) -> list[_Line]:
    """The JSON lines of a file, none if it is missing; a last line left unfinished is cut off.

    read: makes a line's value, and raises ValueError or TypeError for a wrong one.
    """
    if not path.exists():
        return []
    content = read_bytes(path)
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        cut(path, len(whole))
    lines = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            lines.append(read(json.loads(line)))
        except (ValueError, TypeError):
            raise HoldfastError(
                f"{path} line {number}: is no sample; remove the line, and its item is asked again"
            ) from None
    return lines
