"""Which boundary of a trajectory is exported, by number or by a task's name."""

from __future__ import annotations

from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit
from holdfast.learning.taught import taught
from holdfast.streams.item import quoted


def boundary(
    recorded: Recorded,
    after_task: int | None = None,
    *,
    before: int | str | None = None,
    after: int | str | None = None,
) -> Commit:
    """The commit to export: the last one, unless one of the three names another.

    after_task: how many tasks were learned; before, after: a task, by its number, from 1,
    or by its name.
    Raises HoldfastError when more than one is given, no task has that name, nothing was learned at
    the boundary, or its model was not kept.
    """
    if sum(one is not None for one in (after_task, before, after)) > 1:
        raise HoldfastError(
            "--after-task, --before and --after name one boundary; give one of them"
        )
    number = after_task
    if after is not None:
        number = _number(recorded, after, "--after")
    elif before is not None:
        number = _number(recorded, before, "--before") - 1
    learned = recorded.last.completed
    if not learned:
        raise HoldfastError(f"{recorded.directory}: has learned nothing yet; learn a task first")
    if number == 0:
        what = "--after-task 0" if before is None else f"--before {before}"
        raise HoldfastError(
            f"{recorded.directory}: {what} is the unmodified backbone, "
            f"{recorded.config.backbone.name}; give a later boundary, at most {learned}"
        )
    return recorded.boundary(number)


def _number(recorded: Recorded, wanted: int | str, option: str) -> int:
    """The number, from 1, of the learned task that ``wanted`` names or counts."""
    text, learned = str(wanted), range(1, recorded.last.completed + 1)
    counted = int(text) if text.isascii() and text.isdigit() else None
    names = _names(recorded, counted)
    named = names.index(text) + 1 if text in names else None
    place = f"{recorded.directory}: {option} {quoted(text)}"
    if named is None and counted is None:
        raise HoldfastError(f"{place}: no learned task has this name; {did_you_mean(text, names)}")
    if named is not None and counted is not None and counted in learned and counted != named:
        raise HoldfastError(
            f"{place}: is the name of task {named} and the number of task "
            f"{quoted(names[counted - 1])}; give --after-task, which counts"
        )
    number = named or counted or 0
    if number not in learned:
        raise HoldfastError(f"{place}: is no task from 1 to {len(learned)}, which were learned")
    return number


def _names(recorded: Recorded, counted: int | None) -> list[str]:
    """The names of the learned tasks; none where they cannot be read and a number was given."""
    try:
        return [task.name for task in taught(recorded, recorded.last)]
    except HoldfastError:
        if counted is None:
            raise
        return []
