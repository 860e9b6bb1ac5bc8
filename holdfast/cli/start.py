"""Where the program `holdfast` begins."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.cli.main import app
from holdfast.memory.record import is_memory

_VERBS = ("ask", "learn", "forget", "evaluate", "evaluate-edits", "diff", "consolidate")


def start() -> None:
    """Run the command of this process's arguments."""
    verb, directory = [*sys.argv[1:3], "", ""][:2]
    if verb in _VERBS and is_memory(Path(directory)):
        # A memory's model is in float32, so nothing needs this library, whose import by PEFT would
        # take a second of every question. None makes it look as if it were not installed.
        sys.modules.setdefault("bitsandbytes", None)  # type: ignore[arg-type]
    app(prog_name="holdfast")
