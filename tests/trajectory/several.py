"""Work that two processes share as one run; each runs this file as a module.

``python -m tests.trajectory.several JOBS`` does every job of a JSON file within ``joined()``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from holdfast import HoldfastError, RunConfig, Trajectory
from holdfast.core import processes
from holdfast.core.errors import InUseError
from holdfast.learning.training import TaskOptimizer
from holdfast.model import projection
from holdfast.model.sequences import BatchShard
from tests.forked import Forked
from tests.tiny import exact_backbone, exact_gpt2, flat

ROOT = Path(__file__).resolve().parents[2]


BACKBONES = {"llama": exact_backbone, "gpt2": exact_gpt2}


@dataclass(frozen=True)
class Job:
    """A trajectory to advance.

    altered: the part of the sharing that is left out; or "chunks" for losses in small chunks,
    "rounding" for a process that rounds otherwise.
    """

    place: str
    values: dict[str, Any]
    horizon: int = 3
    backbone: str = "llama"
    altered: str = ""

    def trajectory(self) -> Trajectory:
        """In float64 throughout, so that processes differ by rounding alone."""
        config = RunConfig.of(self.values)
        return Trajectory(config, self.place, backbone=BACKBONES[self.backbone]())


def learn(job: Job) -> Trajectory:
    trajectory = job.trajectory()
    with pytest.MonkeyPatch.context() as patch:
        if job.altered == "sum":
            begin = projection.ForwardPass.__init__

            def alone(self: projection.ForwardPass, *given: Any) -> None:
                begin(self, *given)
                self._shared = False

            patch.setattr(projection.ForwardPass, "__init__", alone)
        if job.altered == "counting":
            real = BatchShard.of
            whole = classmethod(lambda cls, lengths: _counted(real(lengths)))
            patch.setattr(BatchShard, "of", whole)
        if job.altered == "chunks":
            patch.setitem(projection._LOGITS_AT_ONCE, "cpu", 257 * 5)
        if job.altered == "rounding":
            patch.setattr(TaskOptimizer, "step", _rounding_by_rank(TaskOptimizer.step))
        trajectory.advance(job.horizon)
    if job.altered == "rounding":
        factors = flat(trajectory.learner().workspace.copied())
        assert processes.broadcast_(factors.clone()).equal(factors), "the processes drift apart"
    return trajectory


def _rounding_by_rank(step: Callable[[TaskOptimizer], None]) -> Callable[[TaskOptimizer], None]:
    def rounding(self: TaskOptimizer) -> None:
        step(self)
        if not processes.is_rank_zero():
            self._adamw.param_groups[0]["params"][0].data.mul_(1 + 1e-9)

    return rounding


def _counted(share: BatchShard | None) -> BatchShard | None:
    return share and BatchShard(share.lengths, share.chosen, counted=True)


def environment(rank: int, port: int) -> dict[str, str]:
    """What a launcher tells process ``rank`` of two."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    texts = {name: str(value) for name, value in place.items()}
    return {**os.environ, **texts, "MASTER_ADDR": "127.0.0.1"}


def start_pair(*words: object, module: str, cwd: Path = ROOT) -> list[Forked]:
    """``python -m MODULE WORDS`` as two processes of one run; forked, so that they import nothing.

    They say little enough for a pipe.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        Forked(
            words,
            module=module,
            environment=environment(rank, port),
            cwd=cwd,
            path=[ROOT],
            stdout="pipe",
            stderr="pipe",
        )
        for rank in range(2)
    ]


def ended(pair: list[Forked]) -> list[tuple[int, str, str]]:
    """The status, output and errors of each."""
    try:
        outputs = [process.communicate(timeout=120) for process in pair]
    finally:
        for process in pair:
            process.kill()
    return [(process.wait(), *words) for process, words in zip(pair, outputs, strict=True)]


def do(jobs: list[Job], folder: Path) -> None:
    """Let two processes do all jobs; what they saw of one another comes back as files."""
    path = folder / "jobs.json"
    path.write_text(json.dumps([asdict(job) for job in jobs]))
    results = ended(start_pair(path, module="tests.trajectory.several"))
    status, killed = (status for status, *_ in results)
    messages = "\n".join(errors for *_, errors in results)
    assert (status, killed) == (0, -signal.SIGKILL), messages


def _check_what_they_tell() -> None:
    import torch

    rank = 0 if processes.is_rank_zero() else 1
    assert processes.world_size() == 2
    for number in range(5):
        lists = [[item] * item for item in range(number)]
        lists_of_rank = [lists[item] for item in processes.rank_indices(number)]
        assert processes.all_gather_lists(lists_of_rank, number) == lists
    rows = torch.tensor([[1.5], [-2.5], [4.0]], dtype=torch.bfloat16)
    of_two_items = processes.all_gather_rows(rows[2 * rank :][: 2 - rank], [2, 1])
    assert of_two_items.equal(rows) and of_two_items.dtype == torch.bfloat16
    assert processes.all_reduce_count(rank + 1) == 3
    assert processes.run_on_rank_zero(lambda: ["naïve", rank]) == ["naïve", 0]

    def fail() -> None:
        raise HoldfastError("the first process says so")

    with pytest.raises(HoldfastError, match="the first process says so"):
        processes.run_on_rank_zero(fail)

    def refuse() -> None:
        raise InUseError("by a third process")

    with pytest.raises(InUseError, match="by a third process"):
        processes.run_on_rank_zero(refuse)


def _check_that_a_loss_is_noticed() -> NoReturn:
    """One kills itself; the other must be told so at once, in one line."""
    if not processes.is_rank_zero():
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(HoldfastError, match="another process of this run has ended"):
        processes.all_reduce_count(1)
    assert time.monotonic() - began < 10
    os._exit(0)


if __name__ == "__main__":
    with processes.joined():
        _check_what_they_tell()
        for job in json.loads(Path(sys.argv[1]).read_text()):
            learn(Job(**job))
        _check_that_a_loss_is_noticed()
