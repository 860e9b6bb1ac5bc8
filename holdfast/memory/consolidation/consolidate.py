"""Learn all facts of a memory's lessons into one adapter, or into neurons, and commit it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import remove_unfinished
from holdfast.core.files import FOR_EVER, lock_directory
from holdfast.core.reporting import WorkReport, silent
from holdfast.core.seeding import derive
from holdfast.memory.batch import Looks, facts_of, questions_on_file, write_lesson
from holdfast.memory.consolidation.rehearsal import ConsolidationSettings, NeuronSettings
from holdfast.memory.consolidation.run import learn_adapter, learn_neurons
from holdfast.memory.engine import Engine
from holdfast.memory.memory import Memory
from holdfast.memory.record import (
    CONSOLIDATION_LOCK,
    PARTS,
    PROGRESS_OF_ALL,
    LearnedNeurons,
    Record,
    remove_unnamed,
    write_record,
)
from holdfast.model.adapter import State
from holdfast.streams import Task
from holdfast.streams.batches import fact_key, latest


@dataclass(frozen=True)
class ConsolidationOutcome:
    """What a consolidation did.

    facts, answered: learned together, and answered by the new weights; lessons_kept: how many of
    the ``lessons`` keep their own adapter, as it answers facts that the new one does not; is_new:
    False if this was learned before; ``answered`` then counts what the kept adapters answer too.
    """

    facts: int
    answered: int
    lessons: int
    lessons_kept: int
    is_new: bool = True


def consolidate(
    memory: Memory,
    settings: ConsolidationSettings | NeuronSettings | None = None,
    report: WorkReport = silent,
) -> ConsolidationOutcome:
    """Learn all facts of the lessons so far into one adapter, which replaces the lessons' adapters.

    A lesson keeps its adapter if that answers a fact that the new one does not. The new one acts at
    every token, so export can merge it into the model. With :class:`NeuronSettings` the facts are
    learned into neurons, which export makes part of the model, and the lessons keep their adapters.
    Lessons learned meanwhile are not touched. A killed run continues. report(what, done, total).
    Nothing is done if one such adapter, or such neurons, were taught all lessons before.
    Raises HoldfastError if nothing is learned yet, for neurons in a model without gated MLPs, while
    another process consolidates, and if the disk is full; the memory is then as it was.
    """
    settings = settings or ConsolidationSettings()
    memory.refresh()
    memory.learned_answerer()  # raises if nothing is learned or a lesson is damaged
    if (done := _done(memory, neurons=isinstance(settings, NeuronSettings))) is not None:
        return done
    with lock_directory(memory.directory, lock=CONSOLIDATION_LOCK, parts=PARTS):
        remove_unfinished(memory.directory, PROGRESS_OF_ALL)  # what a killed one left
        record, tasks = memory.record, memory.tasks[: memory.horizon]
        engine = memory.engine()
        facts = facts_of(latest(tasks).values(), engine.limits.fits)
        progress = memory.directory / PROGRESS_OF_ALL
        seed = derive(record.seed, "consolidation")
        # Other settings give another name, so no file that the record names is overwritten.
        digest = sha256_of([asdict(settings), [task.fingerprint for task in tasks]])[:8]
        file = f"{len(tasks):05d}-{digest}.safetensors"
        if isinstance(settings, NeuronSettings):
            state, given = learn_neurons(engine, facts, settings, seed, progress, report)
            file, lessons_kept = f"neurons-{file}", 0
            write_lesson(memory.directory, file, state, [])
            missed = tuple(fact.key for fact, right in zip(facts, given, strict=True) if not right)
            neurons = LearnedNeurons(file, len(tasks), len(facts), missed)
            change = replace(record, neurons=neurons)
        else:
            state, given = learn_adapter(engine, facts, settings, seed, progress, report)
            by_key = {fact.key: right for fact, right in zip(facts, given, strict=True)}
            change, lessons_kept = _one_for_all(
                engine, memory.directory, record, tasks, state, by_key, f"all-{file}"
            )
        with lock_directory(memory.directory, patience=FOR_EVER, create=False):
            memory.refresh()
            _commit(memory, record, change)
        with contextlib.suppress(OSError):
            progress.unlink()
    memory.refresh()
    return ConsolidationOutcome(len(facts), sum(given), len(record.lessons), lessons_kept)


def _done(memory: Memory, *, neurons: bool) -> ConsolidationOutcome | None:
    """The outcome of an earlier consolidation that has all lessons; None if there is none."""
    facts, record = len(memory.learned), memory.record
    if neurons:
        learned = record.all_neurons
        if learned is None:
            return None
        answered = learned.facts - len(learned.missed)
        return ConsolidationOutcome(learned.facts, answered, memory.horizon, 0, is_new=False)
    files = [lesson.file for lesson in record.lessons]
    is_one = len(set(files)) == 1 and record.lessons[0].whole_turn
    if record.consolidated < memory.horizon and not is_one:
        return None
    newest = f"all-{record.consolidated:05d}-"
    lessons_kept = 0 if is_one else sum(not file.startswith(newest) for file in files)
    answered = facts - len(memory.missed())
    return ConsolidationOutcome(facts, answered, memory.horizon, lessons_kept, is_new=False)


def _one_for_all(
    engine: Engine,
    directory: Path,
    record: Record,
    tasks: Sequence[Task],
    state: State,
    given: dict[str, bool],
    file: str,
) -> tuple[Record, int]:
    """Write the new adapter; return the record with it, and how many lessons keep their own.

    A lesson has the new adapter if that answers all that its own answered.
    """
    # For the key of each fact, the number of the last task that has it.
    owners = {fact_key(item): number for number, task in enumerate(tasks) for item in task.items}
    lessons = []
    for number, lesson in enumerate(record.lessons):
        facts = [key for key, owner in owners.items() if owner == number]
        if all(given[key] or key in lesson.missed for key in facts):
            missed = tuple(key for key in facts if not given[key])
            lesson = replace(lesson, file=file, missed=missed, whole_turn=True)
        lessons.append(lesson)
    answered = [
        (key, text)
        for key, text in questions_on_file(item for task in tasks for item in task.items)
        if lessons[owners[key]].file == file
    ]
    if not answered:  # at most lessons whose facts are all corrected would have the new one
        return replace(record, consolidated=len(lessons)), len(lessons)
    keys, texts = zip(*answered, strict=True)
    looks = Looks(keys, tuple(engine.looks(texts)))
    looks.write(directory, file, state, engine.tuning.key)
    lessons_kept = sum(lesson.file != file for lesson in lessons)
    neurons = record.neurons if lessons_kept else None  # export merges the adapter now
    change = replace(record, lessons=tuple(lessons), consolidated=len(lessons), neurons=neurons)
    return change, lessons_kept


def _commit(memory: Memory, before: Record, after: Record) -> None:
    """Write ``memory.json`` with the lessons learned meanwhile; remove files it no longer names."""
    now, count = memory.record, len(before.lessons)
    if now.lessons[:count] != before.lessons or now.neurons != before.neurons:
        raise HoldfastError(
            f"{memory.directory}: its lessons have changed since; holdfast consolidate "
            f"{memory.directory} again"
        )
    lessons = (*after.lessons, *now.lessons[count:])
    record = replace(now, lessons=lessons, neurons=after.neurons, consolidated=after.consolidated)
    write_record(memory.directory, record)
    remove_unnamed(memory.directory, record)
