"""Cells learned by worker processes are the trajectories that one process would have learned."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue

import pytest

from holdfast import HoldfastError, Trajectory
from holdfast.studies.cell import Cell
from holdfast.studies.executor import Watch
from holdfast.studies.local import LocalExecutor
from holdfast.studies.workers import child, process
from tests.forked import Forked
from tests.studies.conftest import alive, workers_of
from tests.studies.forking import forking
from tests.trajectory.outcome import result_of, tasks_logged

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")

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

    def of(self, what: str, candidate: str) -> list[object]:
        return [detail for kind, name, detail in self.heard if (kind, name) == (what, candidate)]

    def learned(self, executor: LocalExecutor, cells: list[Cell], store: Path) -> dict:
        """Every outcome by its candidate."""
        outcomes = {}
        for outcome in executor.map(cells, store, self):
            name = outcome.cell.candidate
            assert name not in outcomes
            outcomes[name] = outcome
            self.heard.append(("finished", name, None))
        return outcomes


def assert_as_one_process_learns(cell: Cell, store: Path, place: Path) -> None:
    Trajectory(cell.config, place).advance(cell.horizon)
    assert result_of(cell.directory(store)) == result_of(place)
    assert tasks_logged(cell.directory(store)) == list(range(1, cell.horizon + 1))


def await_none(pids: list[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def study(cell, tmp_path_factory):
    """Two workers and what may become of a cell: the cells, the record, the outcomes, the store.

    No worker outlives them.
    """
    store = tmp_path_factory.mktemp("store")
    cells = [
        cell("one", 6),
        cell("other seed", 6, seed=4),
        cell("short", 4, method="vanilla"),
        cell("refused", 4, lora={"rank": 1000, "alpha": 8}),
        cell("longer", 6, method="vanilla"),
        cell("out of memory", 3, sampling=TOO_MUCH),
        cell("last", 4, method="sd_osrm"),
    ]
    record = Record()
    with pytest.MonkeyPatch.context() as patch:
        workers = forking(patch)
        outcomes = record.learned(LocalExecutor(2, threads=1), cells, store)
    assert len(workers) == 3  # one is not sound after memory ran out
    assert all(worker.poll() is not None for worker in workers)
    return {one.candidate: one for one in cells}, record, outcomes, store


def test_every_cell_is_learned_as_in_one_process(study, tmp_path):
    cells, record, outcomes, store = study
    assert outcomes.keys() == cells.keys()
    for name in ("one", "other seed", "longer", "last"):
        assert outcomes[name].error is None
        assert outcomes[name].seconds > 0
        assert_as_one_process_learns(cells[name], store, tmp_path / name)
    assert outcomes["one"].learned == 6
    assert record.of("task", "one") == list(range(1, 7))


def test_two_cells_are_learned_at_once(study):
    """Each says that a task is done while the other is at work."""
    _, record, _, _ = study
    place = {entry: index for index, entry in enumerate(record.heard)}
    for ours, theirs in (("one", "other seed"), ("other seed", "one")):
        begin, end = place["started", theirs, None], place["finished", theirs, None]
        tasks = [
            index for (kind, name, _), index in place.items() if (kind, name) == ("task", ours)
        ]
        assert any(begin < index < end for index in tasks)


def test_one_trajectory_is_never_learned_by_two(study):
    """The longer one waits for the shorter, goes on from there, and lets others pass meanwhile."""
    cells, record, outcomes, _ = study
    assert cells["short"].key == cells["longer"].key
    heard = record.heard
    short, longer = ("finished", "short", None), ("started", "longer", None)
    assert heard.index(("started", "short", None)) < heard.index(short)
    assert outcomes["short"].learned == 4
    assert record.of("task", "longer") == [5, 6]
    assert outcomes["longer"].learned == 2
    assert heard.index(("task", "short", 4)) < heard.index(longer)


def test_cells_that_fail_do_not_stop_the_others(study):
    _, _, outcomes, _ = study
    assert outcomes["refused"].error.startswith("lora.rank = 1000 exceeds the rank of")
    assert outcomes["refused"].learned == 0
    assert outcomes["out of memory"].learned == 1  # there is nothing to replay in the first task
    assert "can't allocate memory" in outcomes["out of memory"].error
    assert "\n" not in outcomes["out of memory"].error


def test_killed_workers(cell, tmp_path, monkeypatch):
    """One cell loses its worker in mid-task and ends as if it had not; one loses it every time."""
    disturbed, doomed = cell("disturbed", 3), cell("doomed", 4, seed=4)
    last = cell("last", 1, method="vanilla")

    class Killer(Record):
        def started(self, one: Cell) -> None:
            super().started(one)
            if one is doomed:
                forked_workers[-1].kill()

        def task_done(self, one: Cell, task: int) -> None:
            super().task_done(one, task)
            if one is disturbed and task == 2:
                forked_workers[-1].kill()

    forked_workers = forking(monkeypatch)
    record = Killer()
    executor = LocalExecutor(1, threads=1, retries=1)
    outcomes = record.learned(executor, [disturbed, doomed, last], tmp_path / "store")
    how = "killed by SIGKILL, as when memory runs out"

    assert outcomes["disturbed"].error is None
    assert outcomes["disturbed"].learned == 3
    assert record.of("task", "disturbed") == [1, 2, 3]
    assert record.of("event", "disturbed") == [
        f"lost its worker ({how}); begins again where it stood"
    ]
    assert [name for what, name, _ in record.heard if what == "started"] == [
        "disturbed", "disturbed", "doomed", "doomed", "last"
    ]  # fmt: skip
    assert_as_one_process_learns(disturbed, tmp_path / "store", tmp_path / "alone")

    assert len(forked_workers) == 4  # the first, and one after each kill
    assert outcomes["doomed"].error == f"lost its worker 2 times, the last time {how}"
    assert outcomes["doomed"].learned == 0
    assert len(record.of("event", "doomed")) == 2
    assert outcomes["last"].error is None


def test_closing_early_leaves_no_process(cell, tmp_path, monkeypatch):
    """What is committed stays; a place where workers die at once has cost only that worker."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$CUDA_VISIBLE_DEVICES" = broken ] && exit 3\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    said = []
    hear = process.WorkerProcess.hear
    monkeypatch.setattr(
        process.WorkerProcess, "hear", lambda self: [said.append(m) or m for m in hear(self)]
    )
    record, short, long = Record(), cell("short", 2), cell("long", 60, seed=4)
    executor = LocalExecutor(devices=["broken", "none"], threads=2, retries=0)
    outcomes = executor.map([short, long], tmp_path, record)
    assert workers_of(os.getpid()) == []  # nothing has been asked for yet
    assert next(outcomes).cell is short
    (worker,) = workers_of(os.getpid())
    assert os.getsid(worker) == worker  # Ctrl-C in the terminal is not for it
    begin = time.monotonic()
    outcomes.close()
    assert time.monotonic() - begin < process._GRACE
    assert not Path(f"/proc/{worker}").exists()
    assert said[0] == {"told": "ready", "threads": 2, "devices": "none"}
    assert record.of("event", "short") == [
        "one worker fewer: it dies before it is ready (exit status 3)"
    ]
    assert Trajectory(short.config, short.directory(tmp_path)).horizon == 2
    assert Trajectory(long.config, long.directory(tmp_path)).horizon < 60


def test_interrupted_by_the_user(cell, tmp_path):
    """Ctrl-C while the workers are still loading their libraries."""
    seen: list[int] = []

    def interrupt() -> None:
        seen.extend(workers_of(os.getpid()))
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.5, interrupt)
    begin = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(LocalExecutor(2).map([cell(), cell(seed=4)], tmp_path, Watch()))
    timer.join()
    assert time.monotonic() - begin < process._GRACE
    assert len(seen) == 2
    assert workers_of(os.getpid()) == []


def test_no_worker_can_start(cell, tmp_path, monkeypatch):
    """Tried once and ``retries`` times more; then the last words are told."""
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\necho tried >> {tmp_path}/tries\necho no\necho torch >&2\nexit 3\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(HoldfastError) as error:
        list(LocalExecutor(4, retries=2).map([cell()], tmp_path / "store", Watch()))
    assert str(error.value) == (
        "workers die before they are ready (exit status 3); the last one said: no torch; "
        "see what holdfast doctor says"
    )
    assert (tmp_path / "tries").read_text() == 3 * "tried\n"


def test_workers_do_not_outlive_a_killed_parent(cell, tmp_path):
    """Killed while its worker is busy with a task that takes hours: nobody else tells it."""
    endless = cell("endless", 1, optim={"epochs": 10**6, "batch_size": 2})
    root = Path(__file__).parents[2]
    words = (endless.config.model_dump_json(), tmp_path)
    parent = Forked(words, module="tests.studies.parent", path=[root], cwd=root, stdout="pipe")
    assert parent.stdout is not None
    with parent.stdout:
        pids = json.loads(parent.stdout.readline())
        assert len(pids) == 1  # no more than there are cells
        assert workers_of(parent.pid) == pids
        while not (endless.directory(tmp_path) / "config.json").exists():  # it begins to learn
            time.sleep(0.02)
        parent.kill()
    await_none(pids, seconds=30)
    assert Trajectory(endless.config, endless.directory(tmp_path)).horizon == 0


@pytest.mark.parametrize("half", [b"", b"{"])
def test_a_worker_ends_though_its_last_words_were_not_read(half, monkeypatch):
    """Then its socket says reset, not that it has ended; or half an order has come."""
    parent, own = socket.socketpair()
    ended = []
    monkeypatch.setattr(child.os, "_exit", ended.append)
    own.sendall(b"ready")
    parent.sendall(half)
    parent.close()
    with own:
        child._listen(own, SimpleQueue())
    assert ended == [0]


def test_workers_share_cores_and_devices(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    def given(threads: int, **more: str) -> dict[str, str]:
        count = str(threads)
        known = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        return {**known, "TOKENIZERS_PARALLELISM": "false", **more}

    # One thread, whatever the number of workers: rounding depends on it.
    for workers in (1, 3, 20):
        assert LocalExecutor(workers)._environments == workers * [given(1)]
    assert LocalExecutor()._environments == [given(1)]
    places = ["0", "1", "0", "1"]
    for workers, threads in ((None, 2), (4, 2), (3, 2), (1, 8)):
        shared = LocalExecutor(workers, devices=["0", "1"], workers_per_gpu=2)._environments
        assert shared == [
            given(threads, CUDA_VISIBLE_DEVICES=device) for device in places[:workers]
        ]
    assert LocalExecutor(20, threads=5)._environments[0]["OMP_NUM_THREADS"] == "5"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"workers": 0}, "workers is 0; it must be at least 1"),
        ({"workers_per_gpu": 0}, "workers_per_gpu is 0; it must be at least 1"),
        ({"threads": 0}, "threads is 0; it must be at least 1"),
        ({"retries": -1}, "retries is -1; it must be at least 0"),
        ({"devices": []}, "devices is empty; name a GPU, or leave it out"),
        (
            {"devices": ["0", "1"], "workers": 3},
            "3 workers on 2 GPUs of 1 each; give at most 2, or more workers a GPU",
        ),
    ],
)
def test_settings_that_leave_no_worker(given, error):
    with pytest.raises(HoldfastError, match=f"^{error}$"):
        LocalExecutor(**given)
