"""Measure a memory, its weights alone and its list alone, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from holdfast.core.config import sha256_of
from holdfast.memory.batch import facts_of, taught_wordings
from holdfast.memory.consolidation.names import related_wordings
from holdfast.memory.evaluation.asking import Report, Sides
from holdfast.memory.evaluation.probes import (
    EverydayQuestion,
    Probe,
    as_json,
    without_taught,
)
from holdfast.memory.evaluation.result import VERSION, MemoryEvaluation
from holdfast.memory.evaluation.stages import StageResult, stages
from holdfast.memory.memory import Memory, Told
from holdfast.memory.record import read_lesson
from holdfast.streams.batches import latest


def learned_wordings(memory: Memory) -> list[str]:
    """Every wording that was trained on, by lessons and by the adapter of consolidated ones."""
    learned, record = memory.tasks[: memory.horizon], memory.record
    wordings = [text for task in learned for text in taught_wordings(task)]
    if any(lesson.whole_turn for lesson in record.lessons):
        engine = memory.engine()
        at_once = latest(learned[: record.consolidated or None])  # a merged memory has no number
        facts = facts_of(at_once.values(), engine.limits.fits)
        wordings += chain.from_iterable(related_wordings(engine, facts))
    return wordings


def evaluate(
    memory: Memory,
    probes: Sequence[Probe],
    everyday: Sequence[EverydayQuestion],
    limit: int | None = None,
    report: Told = lambda *_: None,
    before: Callable[[str], MemoryEvaluation | None] = lambda _: None,
    keep: Callable[[MemoryEvaluation, list[dict[str, Any]]], None] = lambda *_: None,
) -> MemoryEvaluation:
    """Run all measures; nothing is learned or written to the memory's directory.

    probes: of the memory's facts; everyday: questions of common knowledge; limit: the most
    questions of each kind, evenly spread; report(what, done, total); before(identity): an earlier,
    perhaps unfinished result of this evaluation, or None; keep(evaluation, answers): called at the
    beginning, after each stage with its answers, and at the end.
    Raises HoldfastError if the memory has learned nothing or its model cannot be loaded.
    """
    identity = sha256_of([VERSION, memory.fingerprint, as_json(probes, everyday), limit])
    earlier = before(identity)
    if earlier is not None and earlier.finished:
        return earlier
    sides = sides_of(memory)
    about = about_of(memory, sides, facts=len(memory.learned), limit=limit)
    asked = without_taught(probes, everyday, learned_wordings(memory))
    measured = earlier or MemoryEvaluation(identity, about)
    return measured_stages(measured, stages(memory, sides, *asked, limit), report, keep)


def sides_of(memory: Memory) -> Sides:
    """Load a memory's model and weights, to be asked."""
    answerer, learned = memory.learned_answerer(), memory.record.all_neurons
    neurons = None if learned is None else read_lesson(memory.directory, learned.file)[0]
    return Sides(memory.engine(), answerer, neurons)


def about_of(memory: Memory, sides: Sides, **more: Any) -> dict[str, Any]:
    """What an evaluation records about its memory; more: about itself."""
    return {
        "lessons": memory.horizon,
        "adapters": len(sides.answerer.adapter_names),
        "neurons": memory.record.all_neurons is not None,
        "model": memory.model,
        **more,
    }


def measured_stages(
    measured: MemoryEvaluation,
    wanted: Mapping[str, Callable[[Report], StageResult]],
    report: Told,
    keep: Callable[[MemoryEvaluation, list[dict[str, Any]]], None],
) -> MemoryEvaluation:
    """Run the stages that an evaluation lacks, calling ``keep`` as :func:`evaluate` says."""
    keep(measured, [])  # raises before the work if nothing can be written
    for name, stage in wanted.items():
        if name not in measured.stages:
            measures, answers = stage(partial(report, name))
            measured = measured.after(name, measures)
            keep(measured, answers)
    measured = measured.done()
    keep(measured, [])
    return measured
