"""The state of every batch of a memory on the embedded model, in the form of a chat memory's."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.files import is_locked
from holdfast.memory.chat.states import LessonState, corrections_of, questions_of
from holdfast.memory.memory import Memory
from holdfast.streams import Item, Task
from holdfast.streams.batches import FACTS_FILE, read_batches


def batch_states(memory: Memory) -> list[LessonState]:
    """The state of every batch on file, in order; what is missed is not recalled now.

    A correction is missed in its own batch, not in that of the earlier answer.
    """
    tasks = read_batches(memory.directory / FACTS_FILE)
    count = min(memory.horizon, len(tasks))
    forgotten = set(memory.forgotten()) if count else set()
    answers: dict[str, Item] = {}
    states = []
    for number, task in enumerate(tasks, start=1):
        corrected = corrections_of(task, answers)
        state = LessonState(number, task.name, "waiting", len(questions_of(task)), 0, (), corrected)
        if number <= count:
            missed = _missed(task, forgotten)
            right = state.facts - len(missed)
            state = replace(state, state="learned", learned=right, missed=missed)
        elif number == count + 1 and is_locked(memory.directory):
            state = replace(state, state="learning")
        states.append(state)
    return states


def _missed(task: Task, forgotten: set[Item]) -> tuple[str, ...]:
    return tuple(item.question for item in task.items if item in forgotten)
