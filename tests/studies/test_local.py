"""Cells learned by worker processes are the trajectories that one process would have learned."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from holdfast import Trajectory
from holdfast.studies.executor import Cell, Watch, run_cells
from holdfast.studies.local import LocalExecutor
from holdfast.studies.ray_executor import RayExecutor
from holdfast.studies.slurm_executor import SlurmExecutor
from tests.refused import line_of
from tests.studies.forking import forking
from tests.trajectory.outcome import result_of, tasks_logged

TOO_MUCH = {"samples": 10**15, "max_new_tokens": 6}  # no machine has room for their tokens


class Record(Watch):
    """What was heard, in order: (what, candidate, detail)."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, object]] = []

    def started(self, cell: Cell) -> None:
        self.heard.append(("started", cell.candidate, None))

    def task_done(self, cell: Cell, task: int) -> None:
        self.heard.append(("task", cell.candidate, task))

    def event(self, cell: Cell, text: str) -> None:
        self.heard.append(("event", cell.candidate, text))

    def of(self, event: str, candidate: str) -> list[object]:
        return [detail for kind, name, detail in self.heard if (kind, name) == (event, candidate)]

    def errors(self, executor: LocalExecutor, cells: list[Cell], store: Path) -> dict:
        """The error of every cell, or None, by its candidate."""
        errors = {}
        for outcome in run_cells(cells, store, executor, self):
            name = outcome.cell.candidate
            assert name not in errors
            errors[name] = outcome.error
            self.heard.append(("finished", name, None))
        return errors


@pytest.fixture(scope="module")
def alone(cell, tmp_path_factory) -> Path:
    """The trajectory of the plain cell, three tasks learned in this process."""
    place = tmp_path_factory.mktemp("alone")
    Trajectory(cell().config, place).advance(3)
    return place


def test_what_becomes_of_cells(cell, alone, tmp_path, monkeypatch):
    """Two workers, which nobody outlives; cells that fail do not stop the others."""
    plain, short = cell("plain", 3), cell("short", 2, method="vanilla")
    cells = [
        plain,
        cell("other seed", 3, seed=4),
        short,
        cell("refused", 4, lora={"rank": 1000, "alpha": 8}),
        cell("longer", 3, method="vanilla"),
        cell("out of memory", 3, sampling=TOO_MUCH),
    ]
    record, workers, store = Record(), forking(monkeypatch), tmp_path / "store"
    errors = record.errors(LocalExecutor(2), cells, store)
    assert errors.keys() == {cell.candidate for cell in cells}
    assert all(worker.poll() is not None for worker in workers)

    # As in one process.
    assert errors["plain"] is None and record.of("task", "plain") == [1, 2, 3]
    place = plain.directory(store)
    assert result_of(place) == result_of(alone) and tasks_logged(place) == [1, 2, 3]

    # Side by side: both are at work before one of them has ended.
    at = {entry: index for index, entry in enumerate(record.heard)}
    both = ("plain", "other seed")
    assert max(at["started", name, None] for name in both) < min(
        at["finished", name, None] for name in both
    )

    # One trajectory is never learned by two: the longer waits, and goes on where the shorter ended.
    assert short.key == cells[4].key
    assert (record.of("task", "short"), record.of("task", "longer")) == ([1, 2], [3])
    assert at["task", "short", 2] < at["started", "longer", None]

    assert errors["refused"].startswith("lora.rank = 1000 exceeds the rank of")
    assert record.of("task", "refused") == []
    assert record.of("task", "out of memory") == [1]  # nothing is replayed in the first task
    assert "can't allocate memory" in errors["out of memory"]
    assert "\n" not in errors["out of memory"]


def test_killed_workers(cell, alone, tmp_path, monkeypatch):
    """One cell loses its worker in mid-task and ends as if it had not; one loses it every time."""
    disturbed, doomed = cell("disturbed", 3), cell("doomed", 4, seed=4)
    last = cell("last", 1, method="vanilla")

    class Killer(Record):
        def started(self, cell_: Cell) -> None:
            super().started(cell_)
            if cell_ is doomed:
                workers[-1].kill()

        def task_done(self, cell_: Cell, task: int) -> None:
            super().task_done(cell_, task)
            if cell_ is disturbed and task == 2:
                workers[-1].kill()

    workers, record, store = forking(monkeypatch), Killer(), tmp_path / "store"
    how = "killed by SIGKILL, as when memory runs out"
    assert record.errors(LocalExecutor(1), [disturbed, doomed, last], store) == {
        "disturbed": None,
        "doomed": f"lost its worker 3 times, the last time {how}",
        "last": None,
    }
    again = f"lost its worker ({how}); begins again where it stood"
    assert record.of("event", "disturbed") == [again]
    assert record.of("event", "doomed") == [again, again, f"lost its worker ({how}); given up"]
    assert record.of("task", "disturbed") == [1, 2, 3] and record.of("task", "doomed") == []
    place = disturbed.directory(store)
    assert result_of(place) == result_of(alone) and tasks_logged(place) == [1, 2, 3]
    started = [name for kind, name, _ in record.heard if kind == "started"]
    assert started == [*2 * ["disturbed"], *3 * ["doomed"], "last"]
    assert len(workers) == 5  # the first, and one after each kill


def test_closing_early_leaves_no_process(cell, tmp_path, monkeypatch):
    """What is committed stays; a place where workers die at once has cost only that worker."""
    short, long = cell("short", 1), cell("long", 60, seed=4)
    record, workers = Record(), forking(monkeypatch)
    executor = LocalExecutor(devices=["none", "broken"], threads=2)
    outcomes = run_cells([short, long], tmp_path, executor, record)
    assert workers == []  # nothing has been asked for yet
    assert next(outcomes).cell is short
    begin = time.monotonic()
    outcomes.close()
    assert time.monotonic() - begin < 5
    assert len(workers) == 1 + 3 and all(worker.poll() is not None for worker in workers)
    assert record.of("event", "long") == [
        "one worker fewer: it dies before it is ready (exit status 3)"
    ]
    assert Trajectory(short.config, short.directory(tmp_path)).horizon == 1
    assert Trajectory(long.config, long.directory(tmp_path)).horizon < 60


def test_interrupted_by_the_user(cell, tmp_path, monkeypatch):
    """Ctrl-C ends the workers at once, whatever they do, and one that hears nothing too."""
    workers, watch = forking(monkeypatch), Watch()

    def interrupt(*_: object) -> None:
        workers[0].send_signal(signal.SIGSTOP)
        while Path(f"/proc/{workers[0].pid}/stat").read_text().split()[2] != "T":
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "task_done", interrupt)
    cells = [cell(horizon=60), cell("b", 60, seed=4)]
    with pytest.raises(KeyboardInterrupt):
        list(run_cells(cells, tmp_path, LocalExecutor(2), watch))
    ended = [worker.poll() is not None for worker in workers]
    for worker in workers:
        worker.kill()  # where that fails
    assert ended == [True, True]


def test_no_worker_can_start(cell, tmp_path, monkeypatch):
    """Tried once and twice more; then the last words are told."""
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\necho tried >> {tmp_path}/tries\necho no\necho torch >&2\nexit 3\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    outcomes = run_cells([cell()], tmp_path / "store", LocalExecutor(4), Watch())
    assert line_of(list, outcomes) == (
        "workers die before they are ready (exit status 3); the last one said: no torch; "
        "see what holdfast doctor says"
    )
    assert (tmp_path / "tries").read_text() == 3 * "tried\n"


def test_workers_share_cores_and_devices(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    def variables(threads: int, **more: str) -> dict[str, str]:
        count = str(threads)
        limits = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        return {**limits, "TOKENIZERS_PARALLELISM": "false", **more}

    # One thread, whatever the number of workers: rounding depends on it.
    for workers in (None, 1, 20):
        assert LocalExecutor(workers)._environments == (workers or 1) * [variables(1)]
    places = ["0", "1", "0", "1"]
    for workers, threads in ((None, 2), (3, 2), (1, 8)):
        shared = LocalExecutor(workers, devices=["0", "1"], workers_per_gpu=2)._environments
        assert shared == [variables(threads, CUDA_VISIBLE_DEVICES=gpu) for gpu in places[:workers]]
    assert LocalExecutor(20, threads=5)._environments[0]["OMP_NUM_THREADS"] == "5"


def test_as_many_workers_as_cannot_be():
    for executor in (LocalExecutor, RayExecutor, partial(SlurmExecutor, Path())):
        assert line_of(executor, workers=0) == "0 workers; give at least 1"
    assert line_of(LocalExecutor, 3, devices=["0", "1"]) == (
        "3 workers on 2 GPUs of 1 each; give at most 2, or more workers a GPU"
    )
