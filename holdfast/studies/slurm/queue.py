"""The jobs of a study in the queue of a cluster: submit, which of them live, how they ended."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holdfast.core.children import importable
from holdfast.core.errors import HoldfastError
from holdfast.studies.local import environment
from holdfast.studies.slurm.parameters import SlurmParameters

if TYPE_CHECKING:
    import submitit

    Handle = submitit.Job[None]

Cluster = Literal["slurm", "local", "debug"]
_LAST_WORDS = 300  # characters


class JobQueue:
    """The queue of a cluster.

    cluster: ``slurm``, or submitit's stand-ins for it, for tests: jobs of ``local`` are processes
    of this machine, those of ``debug`` are run by this process itself; folder: for submitit's files
    and the logs, absolute, on a file system that all nodes share; threads: of each job.
    Raises HoldfastError when submitit is not installed, or there is no Slurm.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, parameters: SlurmParameters, threads: int
    ) -> None:
        try:
            import submitit
        except ImportError:
            raise HoldfastError(
                'submitit is not installed; pip install "holdfast[slurm]"'
            ) from None
        if cluster == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
            raise HoldfastError(
                "there is no sbatch here; run the command on a machine of a Slurm cluster that "
                "takes jobs, or learn on this machine with --executor local"
            )
        logging.getLogger("submitit").setLevel(logging.CRITICAL)  # it would write into the table
        self._submitit = submitit
        self._cluster = cluster
        self._folder = folder
        self._parameters = parameters
        self._threads = threads

    def submit(self, calls: Sequence[Callable[[], None]], parallel: int) -> list[Handle]:
        """Submit calls as one job array, of which ``parallel`` may run at once.

        Raises HoldfastError when the cluster refuses.
        """
        python = self._python()
        executor = self._submitit.AutoExecutor(
            self._folder,
            self._cluster,
            slurm_python=python,
            slurm_max_num_timeout=self._parameters.max_num_timeout,
            local_python=python,
        )
        executor.update_parameters(**self._parameters.for_submitit(self._threads, parallel))
        inside = "SLURM_JOB_ID" in os.environ  # then a job would inherit the size of this one
        try:
            with self._submitit.helpers.clean_env() if inside else contextlib.nullcontext():
                return executor.submit_array(calls)
        except (RuntimeError, OSError) as error:  # submitit's own errors are RuntimeErrors
            raise HoldfastError(f"Slurm takes no job: {_last_line(error)}") from error

    def _python(self) -> str:
        """The command that starts Python in a job, with what must be set before torch loads."""
        known = {**environment(self._threads, device=None), "PYTHONPATH": importable()}
        settings = [f"{name}={value}" for name, value in known.items()]
        return shlex.join(["env", *settings, sys.executable, "-P"])

    def again(self, job_id: str) -> Handle:
        """The handle of a job that another process has submitted."""
        kind = self._submitit.SlurmJob if self._cluster == "slurm" else self._submitit.LocalJob
        handle: Handle = kind(self._folder, job_id)
        return handle

    def living(self, handles: Iterable[Handle]) -> set[str]:
        """The ids of the jobs that wait, run, or are queued again; of all if Slurm is silent."""
        handles = list(handles)
        if self._cluster != "slurm":
            return {handle.job_id for handle in handles if not handle.done()}
        # Not submitit's own question, to sacct: it needs accounting, which small clusters lack, is
        # late by minutes, and holds a job that was preempted for good to be queued again.
        asked = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
        answer = _said(asked)
        return {handle.job_id for handle in handles} if answer is None else set(answer.split())

    def ending(self, handle: Handle) -> tuple[str, str]:
        """The state in which a job ended, empty if unknown, and the end of its log in one line."""
        state = self._slurm_state(handle.job_id) if self._cluster == "slurm" else handle.state
        log = handle.paths.stdout
        if not log.is_file():
            return state, ""
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4 * _LAST_WORDS))
            text = file.read().decode(errors="replace")
        return state, " ".join(text.split())[-_LAST_WORDS:]

    def _slurm_state(self, job_id: str) -> str:
        told = _said(["sacct", "--jobs", job_id, "--noheader", "--parsable2", "--format=State"])
        return (told or "").partition("\n")[0]

    def withdraw(self, handle: Handle) -> None:
        """Cancel a job whose work is done, if it was queued again in that moment."""
        if self._cluster == "slurm":
            _said(["scancel", "--state=PENDING", handle.job_id])
        else:
            handle.wait()

    def cancel(self, handles: Iterable[Handle]) -> None:
        """Cancel jobs, waiting or running."""
        if self._cluster == "slurm":
            if arrays := {handle.job_id.partition("_")[0] for handle in handles}:
                _said(["scancel", *sorted(arrays)])
            return
        for handle in handles:
            handle.cancel(check=False)
            handle.wait()


def _said(command: list[str]) -> str | None:
    """What one of Slurm's commands prints; None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("sbatch:")]
    return (told or lines or [type(error).__name__])[-1]
