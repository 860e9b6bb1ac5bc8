"""A short run in a process of its own: ``tests.prediction.observing DIRECTORY SETTING...``.

Writes the seconds of its processor and the bytes that the process gained once its model was loaded.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from holdfast.learning.config import RunConfig
from holdfast.learning.trajectory import Trajectory
from holdfast.recipes import recipe


def resident() -> int:
    """Bytes: the most that this process has held."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    run = Trajectory(RunConfig.of(recipe("paper"), sys.argv[2:]), sys.argv[1])
    run.learner()
    before, begin = resident(), time.process_time()
    run.advance()
    sys.stdout.write(json.dumps([time.process_time() - begin, resident() - before]))
