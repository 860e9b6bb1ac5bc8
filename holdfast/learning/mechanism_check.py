"""Check that a mechanism keeps its contract, on three short tasks of the embedded model."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.mechanisms import VANILLA
from holdfast.learning.config import RunConfig
from holdfast.learning.method import known_anchors, parse_method
from holdfast.learning.trajectory import Trajectory
from holdfast.results.record import read_commit

TASKS = 3
_VALUES: dict[str, Any] = {
    "stream": {"tasks": TASKS, "items_per_task": 4},
    "template": {"append_eos": True},
    "lora": {"rank": 4, "alpha": 8},
    "optim": {"lr": 2.0e-3, "epochs": 4},
    "sampling": {"samples": 16, "max_new_tokens": 24},
    "evaluation": {"max_new_tokens": 16},
}


@dataclass(frozen=True)
class Finding:
    """One promise of the contract. kept: whether it holds; why: the likely cause if not."""

    promise: str
    kept: bool
    why: str


def check_mechanism(name: str, overrides: Sequence[str] = ()) -> Iterator[Finding]:
    """Check an anchor or an allocation rule, built in or a plug-in; yield a finding per promise.

    Three short tasks are learned in a temporary folder: in one go, with a stop after each, and
    without the mechanism.

    name: its name in a method's tag; overrides: dotted settings. Errors of the mechanism are not
    caught. Raises HoldfastError if there is no such mechanism.
    """
    parse_method(name)
    with tempfile.TemporaryDirectory() as folder:
        yield from _findings(name, overrides, Path(folder))


def _findings(name: str, overrides: Sequence[str], folder: Path) -> Iterator[Finding]:
    config = RunConfig.of({**_VALUES, "method": name}, overrides)
    straight = Trajectory(config, folder / "straight")
    straight.advance()
    for horizon in range(1, TASKS + 1):
        Trajectory(config, folder / "stopped").advance(horizon)  # a new process would do the same
    losses = zip(_losses(folder / "straight"), _losses(folder / "stopped"), strict=True)
    differing = [task for task, (whole, parts) in enumerate(losses, start=1) if whole != parts]
    yield Finding(
        "stopped between tasks and continued, it learns the same, bit for bit",
        not differing and _commit(folder / "straight") == _commit(folder / "stopped"),
        f"task {differing[0] if differing else TASKS} differs: the state leaves something "
        "out, or it draws without a seed",
    )
    without = config.model_copy(update={"method": VANILLA})
    Trajectory(without, folder / "without").advance()
    ours, theirs = (
        [[epoch["sft"] for epoch in task] for task in _losses(folder / name)]
        for name in ("straight", "without")
    )
    if name in known_anchors() and not _begins_with_a_past(name):
        yield Finding(
            "without a past it changes nothing",
            ours[0] == theirs[0],
            "the first task differs from that without it: its loss must be 0 until a past exists",
        )
    yield Finding(
        "with a past it changes what is learned",
        ours[1:] != theirs[1:],
        "the later tasks are those without it: its loss has no gradient, or its strength is too "
        "small; set it with KEY=VALUE",
    )


def _begins_with_a_past(name: str) -> bool:
    """Whether the anchor acts in the first task already: by a replay token or general text."""
    needs = known_anchors()[name].needs
    return needs.replay or needs.curvature or needs.prior_curvature or needs.general


def _losses(directory: Path) -> list[list[dict[str, float]]]:
    """The losses of every task, epoch by epoch."""
    events = map(json.loads, (directory / "log.jsonl").read_text("utf-8").splitlines())
    return [event["losses"] for event in events]


def _commit(directory: Path) -> dict[str, Any]:
    """The last commit without the log's length, which depends on the measured seconds in it."""
    return {key: value for key, value in read_commit(directory).items() if key != "log_bytes"}
