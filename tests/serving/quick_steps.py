"""``python -m holdfast`` that consolidates in few steps.

Its first step waits, and says so in the file ``HOLD``, while that file exists.
"""

from __future__ import annotations

import os
import runpy
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from holdfast.memory.consolidation import rehearsal
from holdfast.memory.consolidation.rehearsal import Rehearsal
from tests.memory.consolidation.conftest import SETTINGS

if __name__ == "__main__":
    hold, advance = Path(os.environ["HOLD"]), Rehearsal.advance

    def held(self: Rehearsal) -> tuple[float, float]:
        if hold.exists():
            hold.write_text("reached")
        while hold.exists():
            time.sleep(0.02)
        return advance(self)

    rehearsal.ConsolidationSettings = partial(replace, SETTINGS)  # type: ignore[assignment, misc]
    Rehearsal.advance = held  # type: ignore[method-assign]
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
