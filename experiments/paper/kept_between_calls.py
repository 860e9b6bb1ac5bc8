"""The records beside a stream that is built over several calls: settings, and files that grow."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.core.config import check_same
from holdfast.core.file_checks import regular
from holdfast.core.files import atomic_write, read_json, write_json


def claim_settings(
    path: Path, what: str, settings: Mapping[str, Any], records: Iterable[Path]
) -> None:
    """Write the settings as JSON to ``path``, or compare them with those already in it.

    what: names the work in the message. records: the files made under the settings; as long as
    they hold nothing, other settings take the place of the first. Raises HoldfastError if the
    settings differ, or if the directory was moved.
    """
    if path.exists() and any(record.exists() and record.stat().st_size for record in records):
        check_same(path.parent, what, read_json(path), settings)
    else:
        write_json(path, dict(settings))


def extend(path: Path, text: str) -> None:
    """Append text (UTF-8) to a file atomically, by replacing the file with an extended copy.

    For files that seldom grow. Raises HoldfastError if the copy cannot be written.
    """
    with atomic_write(path) as temporary:
        if path.exists():
            shutil.copyfile(regular(path), temporary)
        with temporary.open("ab") as file:
            file.write(text.encode())
