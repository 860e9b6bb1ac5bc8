"""The work of a Slurm job, and the file in which it reports its progress to the study.

Imports no torch, which a node must not load before the job begins.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.core.files import append
from holdfast.studies.executor import unseen
from holdfast.studies.worker import attempt

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission

_MOST = 0.8  # of the time limit; a job stopped later counts as timed out, as in submitit


class Messages:
    """The messages of the jobs of one cell, in a file that only grows, a JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def tell(self, kind: str, **values: Any) -> None:
        """Add a message; HoldfastError when the file cannot be written."""
        append(self.path, json.dumps({"told": kind, **values}) + "\n")

    def new(self) -> list[dict[str, Any]]:
        """The messages added since the last call."""
        if not self.path.exists():
            return []
        # Opened anew, so that a network file system looks for new content.
        with regular(self.path).open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        messages = []
        for line in whole.split(b"\n"):
            try:
                messages.append(json.loads(line))
            except ValueError:  # a job was killed while it wrote
                continue
        return messages


@dataclass
class AdvanceCell:
    """Advances a cell; submitit calls it in a job.

    order: of :meth:`~holdfast.studies.executor.Job.order`; messages: the path of its messages;
    store, mark: the absolute directory of the trajectories, and the id that a node must find there;
    timeout_min: the job's time limit.
    """

    order: dict[str, Any]
    messages: str
    store: str
    mark: str
    timeout_min: int
    _began: float = field(init=False, default=0.0)
    _learned: int = field(init=False, default=0)

    def __call__(self) -> None:
        """Advance the cell and report its outcome."""
        self._began = time.monotonic()
        error = unseen(self.store, self.mark)
        if error is not None:
            self._tell("finished", horizon=None, error=error)
        else:
            self._tell("finished", **attempt(self.order, self._tell))

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
        Messages(Path(self.messages)).tell(kind, **values)
