"""``python -m holdfast`` that consolidates in few steps."""

from __future__ import annotations

import runpy
from dataclasses import replace
from functools import partial

from holdfast.memory.consolidation import rehearsal
from tests.memory.consolidation.conftest import SETTINGS

if __name__ == "__main__":
    rehearsal.ConsolidationSettings = partial(replace, SETTINGS)  # type: ignore[assignment, misc]
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
