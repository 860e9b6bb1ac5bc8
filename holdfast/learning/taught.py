"""Read again the tasks that a trajectory or a memory was taught."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit
from holdfast.learning.stream import stream_of
from holdfast.streams import Task
from holdfast.streams.batches import FACTS_FILE, read_batches


def is_memory(recorded: Recorded) -> bool:
    """Whether a trajectory is a memory: its directory holds its facts."""
    return (recorded.directory / FACTS_FILE).is_file()


def taught(recorded: Recorded, commit: Commit) -> tuple[Task, ...]:
    """The tasks learned until a commit, in order.

    Raises HoldfastError when they cannot be read, or are not those that were learned.
    """
    tasks: tuple[Task, ...]
    if is_memory(recorded):
        place = str(recorded.directory / FACTS_FILE)
        tasks = read_batches(recorded.directory / FACTS_FILE)
    else:
        place = f"stream {recorded.config.stream.name}"
        tasks = stream_of(recorded.config).tasks
    known = tasks[: commit.completed]
    if [task.fingerprint for task in known] != commit.tasks:
        raise HoldfastError(f"{place}: is not as it was learned; restore it")
    return known
