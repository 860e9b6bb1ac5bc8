"""Cells learned by submitit's jobs, as processes of this machine, are those of one process."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import HoldfastError
from holdfast.core.config import build
from holdfast.studies.cell import Cell
from holdfast.studies.executor import Watch
from holdfast.studies.job import Job
from holdfast.studies.recipe import SearchRecipe
from holdfast.studies.search import Search
from holdfast.studies.shared_store import store_mark
from holdfast.studies.slurm import executor as slurm_executor
from holdfast.studies.slurm import work
from holdfast.studies.slurm.executor import SlurmExecutor
from holdfast.studies.slurm.work import AdvanceCell, Messages
from holdfast.studies.suite import Suite
from tests.studies.conftest import alive
from tests.studies.inline import Inline

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
TABLES = ("cells.csv", "cells.json", "summary.csv", "summary.json")


@pytest.fixture(autouse=True)
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(slurm_executor, "_LOOK", 0.05)
    monkeypatch.setattr(slurm_executor, "_ASK", 0.2)


def bytes_of(directory: Path) -> dict[str, bytes]:
    """The tables of a suite, and the rows and metrics of its cells."""
    cells = [*directory.rglob("matrix.csv"), *directory.rglob("metrics.json")]
    paths = [*(directory / name for name in TABLES), *cells]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


# Python runs it when a job begins: a signal comes once, in the middle of the cell's second task.
DISTURB = """
import os, signal, threading
from pathlib import Path
from holdfast.studies.slurm.work import Messages

tell = Messages.tell

def told(self, told, **values):
    tell(self, told, **values)
    path = Path(os.environ["HOLDFAST_TEST_SIGNALS"], self.path.stem)
    if values == {"task": 1} and path.exists():
        number = signal.Signals[path.read_text()]
        path.unlink()
        threading.Timer(0.03, lambda: os.kill(os.getpid(), number)).start()

Messages.tell = told
"""


class Record(Watch):
    """What is heard of each cell."""

    def __init__(self) -> None:
        self.tasks: dict[str, list[int]] = {}
        self.events: dict[str, list[str]] = {}

    def task_done(self, cell: Cell, task: int) -> None:
        self.tasks.setdefault(cell.key, []).append(task)

    def event(self, cell: Cell, text: str) -> None:
        self.events.setdefault(cell.key, []).append(text)


def test_preempted_and_killed_a_suite_ends_with_the_same_bytes(cell, tmp_path, monkeypatch):
    """One job is told to stop and queued again, one dies; neither costs more than a task."""
    optim = {"epochs": 25, "batch_size": 2, "lr": 0.03}
    configs = [cell(method="merge", seed=seed, optim=optim).config for seed in (1, 2)]
    plain, jobs = (Suite(configs, tmp_path / name, horizon=4) for name in ("plain", "jobs"))
    plain.run(Inline())

    stopped, killed = jobs.cells
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("HOLDFAST_TEST_SIGNALS", str(tmp_path / "site"))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(DISTURB)
    (tmp_path / "site" / f"{stopped.key}-4").write_text("SIGUSR2")
    (tmp_path / "site" / f"{killed.key}-4").write_text("SIGKILL")
    record = Record()
    jobs.run(SlurmExecutor(tmp_path / "jobs" / "slurm", cluster="local"), record)

    assert bytes_of(tmp_path / "jobs") == bytes_of(tmp_path / "plain")
    assert record.tasks == {one.key: [1, 2, 3, 4] for one in jobs.cells}
    (lost,) = record.events.pop(killed.key)
    assert lost.startswith("lost its worker (job ")
    assert lost.endswith("; begins again where it stood")
    again = "stopped by Slurm and queued again; goes on where it stood"
    assert record.events == {stopped.key: [again]}


# submitit's own debug executor leaves its logs open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_promotions_wait_for_their_rung(cell, tmp_path):
    values = {
        "base": "demo",
        "set": {},
        "space": {"allocation": ["shared", "merge"]},
        "schedule": {"horizons": [1, 2], "survivors": [1]},
        "seeds": [1],
    }
    base = cell(method="vanilla").config.model_dump(mode="json", exclude={"method", "seed"})
    recipe = build(SearchRecipe, values, source="test")
    plain, jobs = (Search(recipe, base, [], tmp_path / name) for name in ("plain", "jobs"))
    plain.run(Inline())
    jobs.run(SlurmExecutor(tmp_path / "jobs" / "slurm", cluster="debug"))
    for name in ("trace.csv", "leaderboard.csv"):
        assert (tmp_path / "jobs" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert (tmp_path / "jobs" / "trace.csv").read_text().count("promoted") == 1


def test_interrupted_by_the_user(cell, tmp_path):
    """Ctrl-C ends the jobs."""
    seen: list[Path] = []

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not seen and time.monotonic() < deadline:
            seen.extend((tmp_path / "slurm").glob("*.jsonl"))
            time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    with pytest.raises(KeyboardInterrupt):
        list(SlurmExecutor(tmp_path / "slurm", cluster="local").map([cell()], tmp_path, Watch()))
    waiting.join()
    (messages,) = seen
    (told, *_) = Messages(messages).new()
    assert told["told"] == "submitted" and not alive(int(told["job"]))


@pytest.fixture
def job(cell, tmp_path) -> Callable[..., AdvanceCell]:
    """The work of a job, for this process to do."""

    def of(one: Cell, **changes: object) -> AdvanceCell:
        store = tmp_path / "store"
        given = {
            "order": Job(one, one.directory(store)).order(),
            "messages": str(tmp_path / "told.jsonl"),
            "store": str(store),
            "mark": store_mark(store),
            "timeout_min": 1,
        }
        return AdvanceCell(**{**given, **changes})

    return of


def told_in(place: Path) -> list[tuple[str, object]]:
    lines = [json.loads(line) for line in (place / "told.jsonl").read_text().splitlines()]
    return [(line.pop("told"), line) for line in lines]


def test_a_job_tells_what_a_worker_tells(cell, job, tmp_path):
    work = job(cell(horizon=2))
    work.order |= {"a field": "that this executor does not know"}
    work()
    end = {"horizon": 2, "error": None, "sound": True}
    assert told_in(tmp_path) == [
        ("begins", {}),
        ("opened", {"horizon": 0}),
        ("task", {"task": 1}),
        ("task", {"task": 2}),
        ("finished", end),
    ]


def test_a_cell_that_fails_is_told_and_not_tried_again(cell, job, tmp_path):
    job(cell(lora={"rank": 1000, "alpha": 8}))()
    told, outcome = told_in(tmp_path)[-1]
    assert told == "finished"
    assert outcome["error"].startswith("lora.rank = 1000 exceeds the rank of")


def test_a_node_that_does_not_see_the_store_learns_nothing(cell, job, tmp_path):
    one = cell()
    job(one, mark="another")()
    (_, (_, outcome)) = told_in(tmp_path)
    assert outcome["error"].endswith("put the store where all nodes see it (--store)")
    assert not one.directory(tmp_path / "store").exists()


def test_a_job_too_short_for_a_task_is_not_queued_again(cell, job, tmp_path, monkeypatch):
    """Its time limit would stop it in the same task again and again."""
    used = 0.0
    learned: list[int] = []
    monkeypatch.setattr(work.time, "monotonic", lambda: used)

    def attempt(order, tell):
        nonlocal used
        used = 59.0
        for task in learned:
            tell("task", task=task)
        stopped.checkpoint()

    monkeypatch.setattr(work, "attempt", attempt)
    stopped = job(cell())
    with pytest.raises(HoldfastError, match=r"^no task ends within 1 minutes, .*timeout_min"):
        stopped()
    used, learned = 0.0, [1]
    stopped.checkpoint()  # preempted at once, which says nothing of the time it needs
    with pytest.raises(TypeError):  # `None` is no outcome; but it was queued again
        stopped()
    assert told_in(tmp_path)[-1][0] == "event"
    stopped = stopped.checkpoint().function
    used, learned = 0.0, []  # the next job learns nothing more
    with pytest.raises(HoldfastError, match=r"^no task ends within 1 minutes, "):
        stopped()


def test_messages_that_a_killed_job_left_half_are_passed_over(tmp_path):
    path = tmp_path / "told.jsonl"
    messages = Messages(path)
    assert messages.new() == []
    messages.tell("task", task=1)
    with path.open("ab") as file:
        file.write(b'{"told": "task", "ta')
    assert messages.new() == [{"told": "task", "task": 1}]
    messages.tell("begins")  # spoiled by what stands before it
    messages.tell("opened", horizon=1)
    assert messages.new() == [{"told": "opened", "horizon": 1}]
    assert messages.new() == []
