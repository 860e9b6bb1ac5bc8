"""The entry point of the program `holdfast`."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.cli.main import app
from holdfast.memory.record import is_memory

_VERBS = ("ask", "learn", "forget", "evaluate", "evaluate-edits", "diff", "consolidate")


def start() -> None:
    """Run the command in ``sys.argv``."""
    verb, directory = [*sys.argv[1:3], "", ""][:2]
    if verb in _VERBS and is_memory(Path(directory)):
        # PEFT imports bitsandbytes if it is installed, a second of every question. A memory's model
        # is in float32 and does not need it; None here makes it look as if not installed.
        sys.modules.setdefault("bitsandbytes", None)  # type: ignore[arg-type]
    app(prog_name="holdfast")
