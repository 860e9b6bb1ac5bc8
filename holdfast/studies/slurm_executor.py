"""Advance cells by jobs of a Slurm cluster, submitted with submitit.

A job does the work of a local worker and reports its progress in a file, so that this process may
end and be started again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.core.files import append, make_folder
from holdfast.core.processes import importable
from holdfast.studies.executor import (
    LAST,
    Job,
    Message,
    Watch,
    check_workers,
    environment,
    store_mark,
    unseen,
)
from holdfast.studies.worker import attempt, last_words

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission

_LOOK = 1.0  # seconds between looks at the messages
_FILES = 100  # message files read per second at most, to spare the file server
_ASK = 15.0  # seconds between questions to Slurm
_ARRAY = 1000  # jobs in an array at most; Slurm's own bound is 1001 unless configured
_PAUSE = 60.0  # seconds until a refused submission is tried again, while others run
_MOST = 0.8  # of the time limit; a job stopped later counts as timed out, as in submitit
# submitit's parameters for any cluster; all others need the prefix ``slurm_``.
_OF_ANY_CLUSTER = ("name", "timeout_min", "mem_gb", "gpus_per_node", "cpus_per_task")
_Count = Annotated[int, Field(ge=1)]
_ONE = "a cell is learned by one process on one node"


class SlurmParameters(Config):
    """What each job of a study asks of Slurm, by submitit's names; None is the cluster's default.

    timeout_min: minutes until Slurm stops a job, which is then queued again; max_num_timeout: how
    often at most; signal_delay_s: how many seconds before the stop a job is warned; setup: shell
    commands before the job; additional_parameters: any other options of ``sbatch``, by name.
    """

    hints: ClassVar[Mapping[str, str]] = {
        "time": "write timeout_min, in minutes",
        "mem": "write mem_gb",
        "array_parallelism": "--workers says how many jobs run at once",
        **dict.fromkeys(("nodes", "tasks_per_node", "ntasks_per_node"), _ONE),
    }

    name: str = "holdfast"
    timeout_min: _Count = 240
    max_num_timeout: Annotated[int, Field(ge=0)] = 100
    signal_delay_s: _Count = 90
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    exclusive: bool | None = None
    gres: str | None = None
    gpus_per_node: _Count | None = None
    cpus_per_task: _Count | None = None
    mem_gb: Annotated[float, Field(gt=0)] | None = None
    mem_per_cpu: str | None = None
    mem_per_gpu: str | None = None
    comment: str | None = None
    mail_type: str | None = None
    mail_user: str | None = None
    setup: list[str] | None = None
    srun_args: list[str] = []
    additional_parameters: dict[str, Any] = {}

    def for_submitit(self, threads: int, parallel: int) -> dict[str, Any]:
        """The arguments of ``submitit.AutoExecutor.update_parameters``.

        threads: of each worker, its processors unless ``cpus_per_task`` says another number;
        parallel: how many jobs of an array may run at once.
        """
        parameters = self.model_dump(exclude_none=True, exclude={"max_num_timeout"})
        processors = parameters.setdefault("cpus_per_task", threads)
        # srun does not take this number over from the job (since Slurm 22.05).
        parameters["srun_args"] = [f"--cpus-per-task={processors}", *self.srun_args]
        # With this Slurm queues a job again when its node fails or it is preempted.
        parameters["additional_parameters"] = {"requeue": True, **self.additional_parameters}
        parameters["array_parallelism"] = parallel
        arguments = {
            key if key in _OF_ANY_CLUSTER else f"slurm_{key}": value
            for key, value in parameters.items()
        }
        return {"stderr_to_stdout": True, **arguments}


class SlurmExecutor:
    """An executor whose cells are jobs of a Slurm cluster.

    folder: for logs and submitit's files; all nodes must see it and the store under the same paths,
    and have holdfast installed. parameters: what a job asks of Slurm; workers: the most jobs that
    run at once, None for as many as Slurm lets run; threads: of each job. A job that Slurm preempts
    or that uses up its time goes on later and does not count as lost; one that the user cancels is
    not submitted again.

    Raises HoldfastError when submitit is not installed, or there is no Slurm.
    """

    def __init__(
        self,
        folder: Path,
        parameters: SlurmParameters | None = None,
        *,
        workers: int | None = None,
        threads: int = 1,
    ) -> None:
        check_workers(workers)
        try:
            import submitit
        except ImportError:
            raise HoldfastError(
                'submitit is not installed; pip install "holdfast[slurm]"'
            ) from None
        if not (shutil.which("sbatch") and shutil.which("srun")):
            raise HoldfastError(
                "there is no sbatch here; run the command on a machine of a Slurm cluster that "
                "takes jobs, or learn on this machine with --executor local"
            )
        logging.getLogger("submitit").setLevel(logging.CRITICAL)  # it would write into the table
        self._submitit = submitit
        self._folder = folder.absolute()
        self._parameters = parameters or SlurmParameters()
        self._workers = workers
        self._threads = threads

    def begin(self, jobs: list[Job], store: Path, watch: Watch) -> list[Job]:
        """Take over jobs of an earlier call that are still in Slurm's queue, and return them."""
        make_folder(self._folder)
        self._mark, self._watch = store_mark(store), watch
        self._submitted: dict[Job, tuple[str, Messages]] = {}  # the id in the queue, and the file
        self._submit_after = self._asked = 0.0
        latest: dict[Job, list[dict[str, Any]]] = {}
        for job in jobs:
            file = self._file(job)
            since: list[dict[str, Any]] = []  # the messages from the last submission on
            for message in file.new():
                since = [message] if message["kind"] == "submitted" else [*since, message]
            kinds = {message["kind"] for message in since}
            if "submitted" in kinds and "finished" not in kinds:
                latest[job] = since
                self._submitted[job] = since[0]["job"], file
        living = self._living() if latest else set()
        for job, since in latest.items():
            job_id = since[0]["job"]
            if job_id not in living:
                del self._submitted[job]
                continue
            self._watch.event(job.cell, f"its job {job_id} of an earlier call goes on")
            for message in since:  # tasks learned before are counted already
                job.hears(message, self._watch if message["kind"] == "begins" else Watch())
        return [*self._submitted]

    def start(self, due: list[Job]) -> list[Job]:
        """Submit jobs as one array."""
        wave, parallel, most = due[:_ARRAY], len(due), self._workers
        if most is not None:
            parallel = most - len(self._submitted)
            # A single array keeps to `most` itself; beside another, submit only what has room.
            wave = wave if not self._submitted else wave[: max(0, parallel)]
        if not wave or time.monotonic() < self._submit_after:
            return []
        files = [self._file(job) for job in wave]
        for file in files:
            file.new()  # skip the messages of earlier jobs
        limit = self._parameters.timeout_min
        calls = [
            AdvanceCell(job.order(), file, self._mark, limit)
            for job, file in zip(wave, files, strict=True)
        ]
        try:
            ids = self._submit(calls, parallel)
        except HoldfastError as error:
            if not self._submitted:
                raise
            self._submit_after = time.monotonic() + _PAUSE
            self._watch.event(wave[0].cell, f"{error}; tried again in a minute")
            return []
        for job, job_id, file in zip(wave, ids, files, strict=True):
            file.tell("submitted", job=job_id)
            self._submitted[job] = job_id, file
        return wave

    def messages(self) -> Iterator[tuple[Job, Message]]:
        time.sleep(max(_LOOK, len(self._submitted) / _FILES))
        living = None
        if time.monotonic() - self._asked >= _ASK:
            living = self._living()
            self._asked = time.monotonic()
        for job, (job_id, file) in list(self._submitted.items()):
            messages = file.new()  # after asking Slurm, so that no last message is missed
            if living is not None and job_id not in living:
                messages.append(self._ending(job_id))
            for message in messages:
                if message["kind"] == "finished":  # it may just have been queued again
                    _output("scancel", "--state=PENDING", job_id)
                if message["kind"] in LAST:
                    del self._submitted[job]
                yield job, message
                if message["kind"] in LAST:
                    break

    def end(self) -> None:
        if arrays := {job_id.partition("_")[0] for job_id, _ in self._submitted.values()}:
            _output("scancel", *sorted(arrays))

    def _submit(self, calls: Sequence[AdvanceCell], parallel: int) -> list[str]:
        """Submit calls as one job array, of which ``parallel`` may run at once; return their ids.

        Raises HoldfastError when the cluster refuses.
        """
        # To be set before torch loads.
        variables = {**environment(self._threads), "PYTHONPATH": importable()}
        settings = [f"{name}={value}" for name, value in variables.items()]
        executor = self._submitit.AutoExecutor(
            self._folder,
            "slurm",
            slurm_python=shlex.join(["env", *settings, sys.executable, "-P"]),
            slurm_max_num_timeout=self._parameters.max_num_timeout,
        )
        executor.update_parameters(**self._parameters.for_submitit(self._threads, parallel))
        inside = "SLURM_JOB_ID" in os.environ  # a job whose size a new one would inherit
        try:
            with self._submitit.helpers.clean_env() if inside else contextlib.nullcontext():
                return [job.job_id for job in executor.submit_array(calls)]
        except (RuntimeError, OSError) as error:  # submitit's own errors are RuntimeErrors
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reasons = [line for line in lines if line.startswith("sbatch:")] or lines
            raise HoldfastError(
                f"Slurm takes no job: {[type(error).__name__, *reasons][-1]}"
            ) from error

    def _living(self) -> set[str]:
        """The ids of the jobs in Slurm's queue; of all submitted ones if Slurm does not answer."""
        # Not with sacct, as in submitit: it needs accounting, which small clusters lack, is minutes
        # late, and takes a job that was preempted for good for one that is queued again.
        answer = _output("squeue", "--me", "--noheader", "--array", "--format=%i")
        if answer is None:
            return {job_id for job_id, _ in self._submitted.values()}
        return set(answer.split())

    def _ending(self, job_id: str) -> dict[str, Any]:
        """The last message for a job that left the queue without reporting an outcome."""
        answer = _output("sacct", "--jobs", job_id, "--noheader", "--parsable2", "--format=State")
        state = (answer or "").partition("\n")[0]
        if state.startswith("PREEMPTED"):  # by a cluster that does not queue such jobs again
            return {"kind": "again", "text": "preempted; submitted again, goes on where it stood"}
        how = f"job {job_id} ended{f' as {state}' if state else ''}"
        if state.startswith("CANCELLED"):
            return {"kind": "finished", "error": f"its {how}"}
        log = self._folder / f"{job_id}_0_log.out"
        words = ""
        if log.is_file():
            with log.open("rb") as file:
                words = last_words(file)
        return {"kind": "lost", "how": how, "words": words}

    def _file(self, job: Job) -> Messages:
        return Messages(self._folder / f"{job.cell.key}-{job.cell.horizon}.jsonl")


def _output(*command: str) -> str | None:
    """What one of Slurm's commands prints; None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


class Messages:
    """The messages of the jobs of one cell, in a file that only grows, a JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0  # bytes

    def tell(self, kind: str, **values: Any) -> None:
        """Add a message; HoldfastError when the file cannot be written."""
        append(self._path, json.dumps({"kind": kind, **values}) + "\n")

    def new(self) -> list[dict[str, Any]]:
        """The messages added since the last call."""
        if not self._path.exists():
            return []
        # Opened anew, so that a network file system looks for new content.
        with regular(self._path).open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        messages = []
        for line in whole.split(b"\n"):
            with contextlib.suppress(ValueError):  # a job was killed while it wrote
                message = json.loads(line)
                if "kind" in message:  # not so in those of an older holdfast
                    messages.append(message)
        return messages


@dataclass
class AdvanceCell:
    """Advances a cell; submitit calls it in a job.

    order: of :meth:`~holdfast.studies.executor.Job.order`; messages: where it reports; mark: the id
    that its node must find in the store; timeout_min: the job's time limit.
    """

    order: dict[str, Any]
    messages: Messages
    mark: str
    timeout_min: int
    _began: float = field(init=False, default=0.0)
    _learned: int = field(init=False, default=0)

    def __call__(self) -> None:
        """Advance the cell and report its outcome."""
        self._began = time.monotonic()
        error = unseen(self.order, self.mark)
        if error is None:
            error, _ = attempt(self.order, self._tell)
        self._tell("finished", error=error)

    def checkpoint(self) -> DelayedSubmission:
        """The work to be queued again: the same cell, which continues from the last commit.

        submitit calls this during the work, when Slurm is about to stop the job. Raises
        HoldfastError, which becomes the cell's outcome, when the job used up its time and learned
        no task: it would never get further.
        """
        from submitit.core.utils import DelayedSubmission

        used = time.monotonic() - self._began
        if self._learned == 0 and used > _MOST * 60 * self.timeout_min:
            raise HoldfastError(
                f"no task ends within {self.timeout_min} minutes, the time limit of a job; give "
                "it more (--slurm timeout_min=MINUTES)"
            )
        self._tell("event", text="stopped by Slurm and queued again; goes on where it stood")
        return DelayedSubmission(replace(self))

    def _tell(self, kind: str, **values: Any) -> None:
        self._learned += kind == "task"
        self.messages.tell(kind, **values)
