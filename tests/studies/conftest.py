"""Cells that take a second, and the processes that learn them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import RunConfig
from holdfast.studies.cell import Cell


@pytest.fixture(scope="session")
def cell(backbone_directory) -> Callable[..., Cell]:
    """A cell by its candidate and horizon; keywords replace sections of its configuration."""

    def of(candidate: str = "plain", horizon: int = 4, **sections) -> Cell:
        values = {
            "method": "si_sd_replay_merge",
            "seed": 3,
            "backbone": {"name": str(backbone_directory)},
            "stream": {"tasks": 60, "items_per_task": 4},
            "lora": {"rank": 2, "alpha": 8},
            "optim": {"epochs": 2, "batch_size": 2, "lr": 0.03},
            "sampling": {"samples": 4, "max_new_tokens": 6},
            "evaluation": {"max_new_tokens": 24},
        }
        return Cell(candidate, RunConfig.of({**values, **sections}), horizon)

    return of


def alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has asked after does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def workers_of(parent: int) -> list[int]:
    """The living worker processes that a process has started."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            words = (place / "cmdline").read_bytes().split(b"\0")
            if int(fields[1]) == parent and b"holdfast.studies.worker" in words:
                found.append(int(place.name))
    return found
