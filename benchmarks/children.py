"""Measurements in a process of their own: what counts is the whole process."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_TIME_LIMIT = 300


def run(arguments: Sequence[str]) -> str:
    """Run a command at the root of the repository; what it printed. It must succeed."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        arguments,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIME_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(module: str, function: str, *arguments: object) -> Any:
    """What a function of a benchmark returns, as JSON takes it, in a new process."""
    written = ", ".join(map(repr, arguments))
    code = f"import json, {module} as m; print(json.dumps(m.{function}({written})))"
    return json.loads(run([sys.executable, "-c", code]).splitlines()[-1])


def peak_resident() -> float:
    """The most memory in MiB that this process has held.

    What getrusage says begins with the parent's memory, so Linux is asked about this one alone.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (one for one in status.read_text().splitlines() if one.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
