"""What Slurm is asked and what is made of its answers, with programs in the place of Slurm's."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from submitit.core.utils import DelayedSubmission

from holdfast.studies import executor, slurm_executor
from holdfast.studies.executor import Cell, Watch, run_cells
from holdfast.studies.slurm_executor import SlurmExecutor, SlurmParameters
from holdfast.studies.suite import Suite
from tests.refused import line_of
from tests.studies.inline import Inline

# Each appends its arguments to a file beside it, and answers with another. Where there is a file
# sbatch-runs, a job runs as a process of this machine, and again whenever it has asked for that.
PROGRAMS = {
    "sbatch": """
env > "$0-env"
[ -e "$0-refusal" ] && { cat "$0-refusal" >&2; exit 1; }
cp "$1" "$0-script"
if [ -e "$0-runs" ]; then
  exec 9> "$0-lock"; flock 9
  # The copy, as Slurm has one: submitit moves the script once this returns.
  ( export SLURM_JOB_ID=7; bash "$0-script"; while rm "$0-again"; do bash "$0-script"; done ) \
    > /dev/null 2>&1 &
else
  cat "$0-answer" > "$(sed -n 's/^#SBATCH --output=//p' "$1" | sed 's/%A_%a/7_0/; s/%j/7/')"
fi
echo Submitted batch job 7""",
    "srun": 'while [ "$1" != env ]; do shift; done; exec "$@"',
    "scontrol": 'touch "$(dirname "$0")/sbatch-again"',
    # What the jobs do between two questions.
    "squeue": """
[ -e "$0-first" ] && { sh "$0-first"; rm "$0-first"; }
[ -e "$(dirname "$0")/sbatch-runs" ] && ! flock -n "$(dirname "$0")/sbatch-lock" true && echo 7
cat "$0-answer\"""",
    "sacct": 'cat "$0-answer"',
    "scancel": "",
}


class Slurm:
    """The programs. Every job has the number 7; it has ended unless squeue's answer names it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name, text in PROGRAMS.items():
            path = place / name
            path.write_text(f'#!/bin/sh\necho "$@" >> "$0-called"\n{text}\n')
            path.chmod(0o755)
            self.answers(name, "")

    def answers(self, program: str, text: str) -> None:
        """Let a program print this; for ``sbatch``, the log of the first job."""
        (self.place / f"{program}-answer").write_text(text)

    def refuses(self, text: str) -> None:
        (self.place / "sbatch-refusal").write_text(text)

    def job_tells(self, messages: Path, kind: str, **values: object) -> None:
        """Let a job tell this before squeue answers the next time."""
        with (self.place / "squeue-first").open("a") as file:
            file.write(f"echo '{json.dumps({'kind': kind, **values})}' >> {messages}\n")

    def job_finishes(self, messages: Path) -> None:
        self.job_tells(messages, "finished", error=None)

    def called(self, program: str) -> list[str]:
        path = self.place / f"{program}-called"
        return path.read_text().splitlines() if path.exists() else []

    def saw(self, part: str) -> str:
        """The environment (``env``) or the ``script`` of the last submission."""
        return (self.place / f"sbatch-{part}").read_text()

    @property
    def options(self) -> set[str]:
        return set(re.findall(r"^#SBATCH --(.*)$", self.saw("script"), re.MULTILINE))


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Slurm:
    monkeypatch.setattr(slurm_executor, "_LOOK", 0.01)
    monkeypatch.setattr(slurm_executor, "_ASK", 0.0)
    monkeypatch.setattr(executor, "RETRIES", 1)
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return Slurm(place)


class Hearing(Watch):
    """Does something when a message comes."""

    def __init__(self, hears: Callable[[str], object]) -> None:
        self.hears = hears

    def event(self, cell: Cell, text: str) -> None:
        self.hears(text)

    def task_done(self, cell: Cell, task: int) -> None:
        self.hears(f"task {task}")


@pytest.fixture
def learn(tmp_path) -> Callable:
    """Outcomes of cells, whose messages ``hears`` gets."""

    def of(executor: SlurmExecutor, cells: list[Cell], hears=lambda text: None):
        return run_cells(cells, tmp_path / "store", executor, Hearing(hears))

    return of


def messages_of(folder: Path, cell: Cell) -> Path:
    return folder / f"{cell.key}-{cell.horizon}.jsonl"


# Python runs it when a job begins: a signal comes once, in the middle of the next task.
DISTURB = """
import os, signal, threading
from pathlib import Path
from holdfast.studies.slurm_executor import Messages

tell = Messages.tell

def told(self, told, **values):
    tell(self, told, **values)
    path = Path(__file__).with_name(f"after-{values.get('task')}")
    if path.exists():
        number = signal.Signals[path.read_text()]
        path.unlink()
        threading.Timer(0.03, lambda: os.kill(os.getpid(), number)).start()

Messages.tell = told
"""


def test_a_study_that_was_moved_is_not_made_again(slurm, learn, tmp_path):
    outcomes = learn(SlurmExecutor(tmp_path / "study" / "slurm"), [])
    assert "moved or removed meanwhile" in line_of(list, outcomes)
    assert not (tmp_path / "study").exists()


@pytest.mark.skipif(shutil.which("flock") is None, reason="its Slurm needs flock")
def test_preempted_and_killed_a_suite_ends_with_the_same_bytes(slurm, cell, tmp_path, monkeypatch):
    """Its job is told to stop and queued again, then it dies; neither costs more than a task."""
    monkeypatch.setattr(slurm_executor, "_ASK", 0.2)  # its programs are processes
    optim = {"epochs": 25, "batch_size": 2, "lr": 0.03}
    config = cell(method="merge", optim=optim).config
    plain, jobs = (Suite([config], tmp_path / name, horizon=3) for name in ("plain", "jobs"))
    plain.run(Inline())
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(DISTURB)
    (tmp_path / "site" / "after-1").write_text("SIGUSR2")
    (tmp_path / "site" / "after-2").write_text("SIGKILL")
    (slurm.place / "sbatch-runs").touch()
    heard: list[str] = []
    jobs.run(SlurmExecutor(tmp_path / "jobs" / "slurm"), Hearing(heard.append))
    assert heard == [
        "task 1",
        "stopped by Slurm and queued again; goes on where it stood",
        "task 2",
        "lost its worker (job 7 ended); begins again where it stood",
        "task 3",
    ]
    assert len(slurm.called("sbatch")) == 2 and slurm.called("scontrol") == ["requeue 7"]
    for name in ("cells.csv", "cells.json", "summary.csv", f"cells/{jobs.cells[0].key}/matrix.csv"):
        assert (tmp_path / "jobs" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_all_cells_are_one_array_which_ctrl_c_cancels(slurm, learn, cell, tmp_path):
    cells = [cell(seed=seed) for seed in (1, 2, 3)]
    jobs = tmp_path / "jobs"
    parameters = SlurmParameters(partition="gpu", gpus_per_node=1, timeout_min=90, mem_gb=16)
    slurm.answers("squeue", "7_0\n7_1\n7_2\n")
    slurm.job_tells(messages_of(jobs, cells[1]), "event", text="now")

    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(learn(SlurmExecutor(jobs, parameters, workers=2, threads=4), cells, interrupt))
    assert len(slurm.called("sbatch")) == 1
    assert slurm.called("scancel") == ["7"]
    assert slurm.options == {
        "array=0-2%2", "cpus-per-task=4", "gpus-per-node=1", "job-name=holdfast", "mem=16GB",
        "nodes=1", "open-mode=append", f"output={jobs}/%A_%a_0_log.out", "partition=gpu", "requeue",
        "signal=USR2@90", "time=90", "wckey=submitit",
    }  # fmt: skip
    (command,) = [line for line in slurm.saw("script").splitlines() if line.startswith("srun ")]
    assert " --cpus-per-task=4 env OMP_NUM_THREADS=4 MKL_NUM_THREADS=4 " in command
    assert command.endswith(f" {sys.executable} -P -u -m submitit.core._submit {jobs}")


def test_every_setting_is_one_that_submitit_takes(slurm, learn, cell, tmp_path):
    settings = {
        "name": "mine", "timeout_min": 7, "signal_delay_s": 30, "partition": "p", "account": "a",
        "qos": "q", "constraint": "c", "nodelist": "n1", "exclude": "n2", "exclusive": True,
        "gres": "gpu:2", "gpus_per_node": 2, "cpus_per_task": 8, "mem_gb": 0.5, "mem_per_cpu": "1G",
        "mem_per_gpu": "2G", "comment": "why", "mail_type": "FAIL", "mail_user": "me",
        "setup": ["module load cuda"], "srun_args": ["--label"], "max_num_timeout": 5,
        "additional_parameters": {"reservation": "r", "requeue": False},
    }  # fmt: skip
    assert settings.keys() == SlurmParameters.model_fields.keys()
    list(learn(SlurmExecutor(tmp_path / "jobs", SlurmParameters(**settings)), [cell()]))
    assert slurm.options >= {
        "job-name=mine", "time=7", "signal=USR2@30", "partition=p", "account=a", "qos=q",
        "constraint=c", "nodelist=n1", "exclude=n2", "exclusive", "gres=gpu:2", "gpus-per-node=2",
        "cpus-per-task=8", "mem=512MB", "mem-per-cpu=1G", "mem-per-gpu=2G", "comment=why",
        "mail-type=FAIL", "mail-user=me", "reservation=r", "requeue=False",
    }  # fmt: skip
    work = DelayedSubmission.load(tmp_path / "jobs" / "7_submitted.pkl")
    assert (work._timeout_countdown, work.function.timeout_min) == (5, 7)
    assert "\nmodule load cuda\n" in slurm.saw("script")
    assert " --cpus-per-task=8 --label env OMP_NUM_THREADS=1 " in slurm.saw("script")


def test_a_job_that_slurm_ends_is_tried_again_and_then_told(slurm, learn, cell, tmp_path):
    slurm.answers("sacct", "OUT_OF_MEMORY\n")
    slurm.answers("sbatch", "loading\nslurmstepd: error:\tDetected 1 oom_kill event\n")
    heard: list[str] = []
    (outcome,) = learn(SlurmExecutor(tmp_path / "jobs"), [cell()], heard.append)
    assert len(slurm.called("sbatch")) == 2
    assert outcome.error == (
        "lost its worker 2 times, the last time job 7 ended as OUT_OF_MEMORY; it said last: "
        "loading slurmstepd: error: Detected 1 oom_kill event"
    )
    assert heard == [
        "lost its worker (job 7 ended as OUT_OF_MEMORY); begins again where it stood",
        "lost its worker (job 7 ended as OUT_OF_MEMORY); given up",
    ]


def test_preemption_is_no_failure_and_what_is_cancelled_stays_so(slurm, learn, cell, tmp_path):
    """However often Slurm preempts a job and does not queue it again."""
    slurm.answers("sacct", "PREEMPTED\n")
    heard: list[str] = []

    def hears(text: str) -> None:
        heard.append(text)
        if len(heard) == 3:
            slurm.answers("sacct", "CANCELLED by 1000\n")

    (outcome,) = learn(SlurmExecutor(tmp_path / "jobs"), [cell()], hears)
    assert heard == 3 * ["preempted; submitted again, goes on where it stood"]
    assert outcome.error == "its job 7 ended as CANCELLED by 1000"
    assert len(slurm.called("sbatch")) == 4


def test_no_more_than_the_workers_when_one_is_tried_again(slurm, learn, cell, tmp_path):
    cells = [cell(seed=seed) for seed in (1, 2, 3)]
    jobs = tmp_path / "jobs"
    slurm.answers("squeue", "7_1\n7_2\n")
    heard = []

    def hears(text: str) -> None:
        heard.append(text)
        slurm.job_finishes(messages_of(jobs, cells[1]))

    outcomes = learn(SlurmExecutor(jobs, workers=2), cells, hears)
    assert next(outcomes).cell is cells[1]
    assert heard == ["lost its worker (job 7_0 ended); begins again where it stood"]
    assert len(slurm.called("sbatch")) == 1 and "array=0-2%2" in slurm.options
    slurm.answers("squeue", "7_2\n7\n")
    slurm.job_finishes(messages_of(jobs, cells[2]))
    assert next(outcomes).cell is cells[2]
    assert len(slurm.called("sbatch")) == 2 and not any(
        "array" in option for option in slurm.options
    )
    outcomes.close()
    assert slurm.called("scancel") == ["--state=PENDING 7_1", "--state=PENDING 7_2", "7"]


@pytest.mark.parametrize(("lives", "has_outcome"), [(True, False), (False, False), (True, True)])
def test_a_job_of_an_earlier_call_goes_on(lives, has_outcome, slurm, learn, cell, tmp_path):
    """Only if Slurm still has it, and it has not told its outcome; then nothing is submitted."""
    plain, jobs = cell(), tmp_path / "jobs"
    jobs.mkdir()
    earlier = [
        {"kind": "submitted", "job": "4_0"},
        {"kind": "finished", "error": "another time"},
        {"kind": "submitted", "job": "5_1"},
        {"kind": "begins"},
        {"kind": "opened", "horizon": 1},
        {"kind": "task", "task": 2},
        *([{"kind": "finished", "error": "its node is full"}] if has_outcome else []),
    ]
    path = messages_of(jobs, plain)
    path.write_text("".join(json.dumps(message) + "\n" for message in earlier))
    heard: list[str] = []

    def hears(text: str) -> None:
        heard.append(text)
        if "goes on" in text:
            slurm.job_finishes(path)

    slurm.answers("squeue", "5_1\n" if lives else "9\n")
    (outcome,) = learn(SlurmExecutor(jobs), [plain], hears)
    if lives and not has_outcome:
        assert outcome.error is None
        assert heard == ["its job 5_1 of an earlier call goes on"]
        assert slurm.called("sbatch") == []
    else:
        assert outcome.error == "lost its worker 2 times, the last time job 7 ended"
        assert len(slurm.called("sbatch")) == 2


@pytest.mark.parametrize("silent", [False, True])
def test_a_job_that_told_its_outcome_is_not_lost(silent, slurm, learn, cell, tmp_path):
    """Though it has left the queue since, or Slurm does not answer."""
    if silent:
        (slurm.place / "squeue-answer").unlink()
    plain, jobs = cell(), tmp_path / "jobs"
    slurm.job_finishes(messages_of(jobs, plain))
    (outcome,) = learn(SlurmExecutor(jobs), [plain])
    assert outcome.error is None


def test_what_sbatch_refuses_is_told_and_tried_again_while_others_run(
    slurm, learn, cell, tmp_path, monkeypatch
):
    monkeypatch.setattr(slurm_executor, "_PAUSE", 0.0)
    cells, jobs, heard = [cell(seed=seed) for seed in (1, 2)], tmp_path / "jobs", []
    slurm.answers("squeue", "7_1\n")

    def hears(text: str) -> None:
        heard.append(text)
        slurm.refuses("sbatch: error: invalid size\nsbatch: error: busy\n")
        if len(heard) == 3:
            slurm.job_finishes(messages_of(jobs, cells[1]))

    outcomes = learn(SlurmExecutor(jobs), cells, hears)
    assert next(outcomes).cell is cells[1]
    refused = "Slurm takes no job: sbatch: error: busy"
    assert heard[1:3] == 2 * [f"{refused}; tried again in a minute"]
    assert line_of(next, outcomes) == refused  # nothing runs any more


def test_within_a_job_the_cells_do_not_inherit_its_size(slurm, learn, cell, tmp_path, monkeypatch):
    monkeypatch.setenv("SBATCH_ACCOUNT", "ours")
    executor = SlurmExecutor(tmp_path / "jobs")
    list(learn(executor, [cell()]))
    assert "SBATCH_ACCOUNT=ours" in slurm.saw("env")  # the user's default
    monkeypatch.setenv("SLURM_JOB_ID", "3")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "100")
    list(learn(executor, [cell()]))
    assert "SLURM_" not in slurm.saw("env")
    assert os.environ["SLURM_MEM_PER_CPU"] == "100"


def test_without_slurm_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert line_of(SlurmExecutor, tmp_path / "jobs").startswith("there is no sbatch here; run")
    assert not (tmp_path / "jobs").exists()
