"""The machine and the versions that a measurement was taken with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

_VERSIONED = ("holdfast", "torch", "transformers", "peft", "numpy")


def machine() -> dict[str, str | int]:
    """Processor, cores, threads and versions: what a reader needs to judge a time."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "torch threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{name: version(name) for name in _VERSIONED},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
