"""Load the tasks that a trajectory has learned."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit
from holdfast.learning.stream import stream_of
from holdfast.streams import Task


def taught(recorded: Recorded, commit: Commit) -> tuple[Task, ...]:
    """The tasks learned until a commit, in order.

    Raises HoldfastError if they cannot be read, or have changed since they were learned.
    """
    tasks = stream_of(recorded.config).tasks[: commit.completed]
    if [task.fingerprint for task in tasks] != commit.tasks:
        name = recorded.config.stream.name
        raise HoldfastError(f"stream {name}: is not as it was learned; restore it")
    return tasks
