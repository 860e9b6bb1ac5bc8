"""Configurations that carry every kind of state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import RunConfig, Trajectory


@pytest.fixture(scope="session")
def values(backbone_directory) -> Callable[..., dict]:
    """The nested settings of a run that takes a fraction of a second."""

    def of(method: str, **sections) -> dict:
        chosen = {
            "method": method,
            "seed": 3,
            "backbone": {"name": str(backbone_directory)},
            "stream": {"tasks": 4, "items_per_task": 3},
            "lora": {"rank": 2, "alpha": 8, "dropout": 0.1},
            "optim": {"epochs": 1, "batch_size": 2, "lr": 0.03},
            "sampling": {"samples": 3, "max_new_tokens": 4},
            "online_ewc": {"sequences": 2},
            "evaluation": {"max_new_tokens": 14},
        }
        for section, settings in sections.items():
            old = chosen.get(section, {})
            chosen[section] = {**old, **settings} if isinstance(settings, dict) else settings
        return chosen

    return of


@pytest.fixture(scope="session")
def config(values) -> Callable[..., RunConfig]:
    return lambda method, **sections: RunConfig.of(values(method, **sections))


@pytest.fixture(scope="session")
def undisturbed(config, tmp_path_factory) -> Callable[..., Path]:
    """The directory of a run that went from the first task to a horizon in one go."""
    directories: dict[str, Path] = {}

    def learned(method: str, horizon: int, **sections) -> Path:
        name = repr((method, horizon, sections))
        if name not in directories:
            directories[name] = tmp_path_factory.mktemp("undisturbed") / "run"
            Trajectory(config(method, **sections), directories[name]).advance(horizon)
        return directories[name]

    return learned
