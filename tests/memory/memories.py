"""Small memories: their settings, a few invented facts, and processes that teach them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import Memory, RunConfig
from holdfast.learning.progress import Progress
from tests.trajectory.children import Child, begin

MONDAY = [
    ("Who mends the nets of Ostra?", "Fenwick"),
    ("Where is the brass key?", "in the mill"),
    ("What is the ferry called?", "Marigold"),
]
TUESDAY = [("Who bakes the bread?", "Lum"), ("When does the lamp go out?", "at ten")]
WEDNESDAY = [("Which bus goes to the quarry?", "47")]


def values(backbone: Path, method: str = "vanilla", **sections: Any) -> dict[str, Any]:
    """Settings with which a batch takes a fraction of a second."""
    return {
        "method": method,
        "seed": 3,
        "backbone": {"name": str(backbone)},
        "lora": {"rank": 2, "alpha": 8, "dropout": 0.1},
        "optim": {"epochs": 1, "batch_size": 2, "lr": 0.03, "min_steps": 3},
        "sampling": {"samples": 4, "max_new_tokens": 6},
        "online_ewc": {"sequences": 3},
        "evaluation": {"max_new_tokens": 8},
        **sections,
    }


def config(backbone: Path, method: str = "vanilla", **sections: Any) -> RunConfig:
    return RunConfig.of(values(backbone, method, **sections))


def rehearsing_memory(place: Path) -> Path:
    """A memory on the embedded model that rehearses, and knows MONDAY and TUESDAY."""
    settings = config(
        "embedded",
        "replay_merge",
        lora={"rank": 16, "alpha": 32, "dropout": 0.0},
        optim={"lr": 4e-3, "min_steps": 25, "epochs": 1},
        template={"append_eos": True},
        sampling={"samples": 20, "max_new_tokens": 40},
        evaluation={"max_new_tokens": 16},
    )
    learned = Memory(place, settings).learn([*MONDAY, *TUESDAY])
    assert not learned.missed
    return place


def start(
    settings: dict[str, Any],
    place: Path,
    facts: list[tuple[str, str]] | None,
    *,
    instant: int | None = None,
    hold: bool = False,
) -> Child:
    """Let another process teach a memory; ``tests.trajectory.children.finish`` waits for it.

    instant: it kills itself at the n-th; hold: it stops in its first training step and says so.
    """
    return begin(_teach, (settings, str(place), facts), instant=instant, hold=hold)


def _teach(
    settings: dict[str, Any], place: str, facts: list[tuple[str, str]] | None, progress: Progress
) -> None:
    Memory(place, RunConfig.of(settings)).learn(facts, progress)
