"""Measure a memory, its weights alone and its list alone, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.core.config import sha256_of
from holdfast.core.reporting import WorkReport, silent
from holdfast.memory.batch import facts_of, read_lesson, taught_wordings
from holdfast.memory.consolidation.names import related_wordings
from holdfast.memory.evaluation.asking import Sides
from holdfast.memory.evaluation.probes import EverydayQuestion, Probe, without_taught
from holdfast.memory.evaluation.result import (
    VERSION,
    MemoryEvaluation,
    read_evaluation,
    write_evaluation,
)
from holdfast.memory.evaluation.stages import Stages, stages
from holdfast.memory.memory import Memory
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
    report: WorkReport = silent,
    out: Path | None = None,
) -> MemoryEvaluation:
    """Run all measures; nothing is learned or written to the memory's directory.

    probes: of the memory's facts; everyday: questions of common knowledge; limit: the most
    questions of each kind, evenly spread; report(what, done, total); out: a folder that keeps the
    measures and answers of every stage, so that the next call continues.
    Raises HoldfastError if the memory has learned nothing, its model cannot be loaded, or ``out``
    cannot be written.
    """

    def stages_of(sides: Sides) -> Stages:
        asked = without_taught(probes, everyday, learned_wordings(memory))
        return stages(memory, sides, *asked, limit)

    questions = json.dumps([[vars(probe) for probe in probes], [vars(row) for row in everyday]])
    identity = sha256_of([VERSION, memory.fingerprint, questions, limit])
    about = {"facts": len(memory.learned), "limit": limit}
    return measured(memory, identity, about, stages_of, report, out)


def measured(
    memory: Memory,
    identity: str,
    about: Mapping[str, Any],
    stages_of: Callable[[Sides], Stages],
    report: WorkReport,
    out: Path | None,
) -> MemoryEvaluation:
    """Run the stages that ``out`` lacks. about: what is recorded beside the memory's own values."""
    evaluation = read_evaluation(out, identity)
    if evaluation is not None and evaluation.finished:
        return evaluation
    sides = sides_of(memory)
    evaluation = evaluation or MemoryEvaluation(
        identity,
        {
            "lessons": memory.horizon,
            "adapters": len(sides.answerer.adapter_names),
            "neurons": memory.record.all_neurons is not None,
            "model": memory.model,
            **about,
        },
    )
    write_evaluation(out, evaluation)  # raises before the work if nothing can be written
    try:
        for name, stage in stages_of(sides).items():
            if name not in evaluation.stages:
                measures, answers = stage(partial(report, name))
                rows, done = {**evaluation.rows, **measures}, (*evaluation.stages, name)
                evaluation = replace(evaluation, rows=rows, stages=done)
                write_evaluation(out, evaluation, answers)
    except KeyboardInterrupt as stop:
        kept = f"{len(evaluation.stages)} measures are kept in {out}"
        stop.add_note(kept if out is not None else "nothing is kept without --out DIR")
        raise
    evaluation = replace(evaluation, finished=True)
    write_evaluation(out, evaluation)
    return evaluation


def sides_of(memory: Memory) -> Sides:
    """Load a memory's model and weights, to be asked."""
    answerer, learned = memory.learned_answerer(), memory.record.all_neurons
    neurons = None if learned is None else read_lesson(memory.directory, learned.file)[0]
    return Sides(memory.engine(), answerer, neurons)
