"""What two trajectories must have in common, and what a directory holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from holdfast.learning.learner import Learner


def result_of(directory: Path) -> dict[str, Any]:
    """The rows, the metrics, the commit and every file that it names, byte by byte.

    Left out is what tells the time: the log, and how long it is.
    """
    commit = json.loads((directory / "state" / "commit.json").read_text())
    del commit["log_bytes"], commit["sha256"]
    names = ["matrix.csv", "metrics.json", *commit["files"]]
    return {"commit": commit, **{name: (directory / name).read_bytes() for name in names}}


def numbers_of(directory: Path) -> tuple[str, str]:
    """The rows and the metrics."""
    return (directory / "matrix.csv").read_text(), (directory / "metrics.json").read_text()


def contents_of(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, but for the empty one that is locked."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def commit_of(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "state" / "commit.json").read_text())


def tasks_logged(directory: Path) -> list[int]:
    """The task of every line of the log; each line must be whole."""
    text = (directory / "log.jsonl").read_bytes()
    assert text.endswith(b"\n")
    return [json.loads(line)["task"] for line in text.splitlines()]


def tensors_of(learner: Learner) -> dict[str, torch.Tensor]:
    """All that the next task depends on."""
    workspace = learner.workspace
    return {
        **workspace.copied(),
        **{f"dense {name}": matrix for name, matrix in workspace.dense().items()},
        **{
            f"{name} {key}": tensor
            for name, anchor in learner.anchors
            for key, tensor in anchor.pack(learner.states[name]).items()
        },
        **{f"rule {key}": tensor for key, tensor in learner.allocation_state.items()},
    }


def assert_same_learner(ours: Learner, theirs: Learner) -> None:
    left, right = tensors_of(ours), tensors_of(theirs)
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name], right[name])] == []
    assert ours.completed == theirs.completed
