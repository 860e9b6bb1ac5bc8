"""Cells that take a second."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast import RunConfig
from holdfast.studies.executor import Cell


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
