"""Learn the facts of a memory at once, in steps that a kill does not lose."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from holdfast.core.config import sha256_of
from holdfast.core.own import require_directory
from holdfast.core.seeding import derive
from holdfast.memory.batch import WordedFact
from holdfast.memory.consolidation.own_texts import OwnText, own_texts, reply_tokens
from holdfast.memory.consolidation.rehearsal import (
    ConsolidationSettings,
    Rehearsal,
    RehearsalFact,
)
from holdfast.memory.engine import Engine
from holdfast.memory.invented import invented_name
from holdfast.memory.memory import Told
from holdfast.memory.words import replace_name
from holdfast.model.adapter import State, adapted, load_state, state_of
from holdfast.model.tensors import read_tensors, write_tensors

_SECONDS = 60.0  # between two writes of the progress
_REPLACED = 200  # taught questions about other names, at most
_KINDS = ("person", "thing")
_AT_ONCE = 32


def learn_at_once(
    engine: Engine,
    facts: Sequence[WordedFact],
    settings: ConsolidationSettings,
    seed: int,
    progress: Path,
    report: Told = lambda *_: None,
) -> tuple[State, list[bool]]:
    """The factors in bfloat16 that answer the facts, and which taught questions they answer.

    progress: a file; a run of the same facts, settings, model and seed goes on from it. It is
    written about once a minute, and when Ctrl-C or SIGTERM ends the run, and left behind.
    report(what, done, total).
    """
    form = engine.form
    taught = [
        RehearsalFact(
            tuple(form.answer(fact.answer)),
            tuple(tuple(form.question(text)) for text in fact.wordings),
        )
        for fact in facts
    ]
    engine.attach_shape(engine.upper_layers(settings.start, settings.rank))
    own: dict[str, Sequence[OwnText]] = {}
    for text in own_texts(
        engine.reader,
        engine.fingerprint,
        settings.own,
        lambda done, total: report("its own texts", done, total),
    ):
        own[text.kind] = [*own.get(text.kind, ()), text]
    own["replaced"] = _renamed_questions(engine, facts, settings, seed)
    run = Rehearsal(engine.reader, taught, own, settings, seed)
    identity = sha256_of([asdict(settings), engine.fingerprint, seed, [asdict(f) for f in facts]])
    _resume(run, progress, identity)
    written = time.monotonic()
    whole = run.step, run.tensors()  # after a step, since what interrupts comes within one
    try:
        while run.step < run.steps:
            run.advance()
            whole = run.step, run.tensors()
            report("consolidating", run.step, run.steps)
            if time.monotonic() - written >= _SECONDS or run.step == run.steps:
                _write(progress, identity, *whole)
                written = time.monotonic()
    except KeyboardInterrupt:
        _write(progress, identity, *whole)
        raise
    state = state_of(engine.reader.model, torch.bfloat16)
    load_state(engine.reader.model, state)
    return state, answers_given(engine, taught, whole=settings.whole)


def _write(progress: Path, identity: str, step: int, tensors: State) -> None:
    require_directory(progress.parent)  # a memory that was moved is not made again
    write_tensors(progress, tensors, {"identity": identity, "step": step})


def _resume(run: Rehearsal, progress: Path, identity: str) -> None:
    """Go on from what is on disk, unless it is missing, damaged or of another run."""
    try:
        tensors, note = read_tensors(progress)
    except ValueError:
        return
    if isinstance(note, dict) and note.get("identity") == identity:
        run.resume(int(note["step"]), tensors)


@torch.no_grad()
def answers_given(engine: Engine, taught: Sequence[RehearsalFact], *, whole: bool) -> list[bool]:
    """Whether greedy decoding with the attached adapter gives each fact's answer and ends."""
    given: list[bool] = []
    for begin in range(0, len(taught), _AT_ONCE):
        group = taught[begin : begin + _AT_ONCE]
        questions = [fact.questions[0] for fact in group]
        answers = [fact.answer for fact in group]
        readings = [] if whole else engine.reader.read(questions)
        with adapted(engine.reader.model):
            logits = (
                engine.reader.whole_logits(questions, answers)
                if whole
                else engine.reader.answer_logits(readings, answers)
            )
        given += (logits.margins() > 0).tolist()
    return given


def _renamed_questions(
    engine: Engine, facts: Sequence[WordedFact], settings: ConsolidationSettings, seed: int
) -> list[OwnText]:
    """Taught questions about invented names, with what the untouched model answers."""
    draw = random.Random(derive(seed, "consolidation", "others"))
    drawn = draw.sample(list(facts), min(_REPLACED, len(facts)))
    asked = [draw.choice(fact.wordings) for fact in drawn]
    texts: list[str] = []
    for text, look in zip(asked, engine.looks(asked), strict=True):
        name = invented_name(draw, draw.choice(_KINDS))
        other = replace_name(text, look.names, name)
        if other is not None and engine.limits.fits(other):
            texts.append(other)
    questions = [engine.form.question(text) for text in texts]
    answers = reply_tokens(engine.reader, questions, settings.own.tokens)
    return [
        OwnText("replaced", tuple(question), tuple(answer))
        for question, answer in zip(questions, answers, strict=True)
    ]
