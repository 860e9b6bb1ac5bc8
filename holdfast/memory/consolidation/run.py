"""Learn all facts of a memory into an adapter or neurons; a killed run continues from a file."""

from __future__ import annotations

import contextlib
import ctypes
import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

from holdfast.core.config import sha256_of
from holdfast.core.reporting import WorkReport, silent
from holdfast.core.seeding import derive
from holdfast.memory.batch import WordedFact
from holdfast.memory.consolidation.names import (
    LAST_WORD,
    RIVAL,
    detectors_of_names,
    last_words,
    named_facts,
    related_wordings,
    rival_names,
)
from holdfast.memory.consolidation.own_texts import Turn, bare_question, own_texts, reply_tokens
from holdfast.memory.consolidation.rehearsal import (
    ConsolidationSettings,
    NeuronRehearsal,
    NeuronSettings,
    Rehearsal,
)
from holdfast.memory.engine import Engine
from holdfast.memory.library import KINDS, invented_name
from holdfast.memory.wordings import corruptions
from holdfast.memory.words import replace_name
from holdfast.model.adapter import State, adapted, load_state, state_of
from holdfast.model.chat import ChatForm
from holdfast.model.neurons import PARTS, acting, gated_mlps
from holdfast.model.tensors import read_tensors, write_tensors

_SECONDS = 60.0  # between two writes of the progress
_VERSION = 3  # of how neurons and adapters are learned
_REPLACED = 200  # the most taught questions with another name


def learn_adapter(
    engine: Engine,
    facts: Sequence[WordedFact],
    settings: ConsolidationSettings,
    seed: int,
    progress: Path,
    report: WorkReport = silent,
) -> tuple[State, list[bool]]:
    """Train an adapter; return its factors in bfloat16, and whether it answers each fact.

    progress: a file from which a run of the same facts, settings, model and seed continues; it is
    written once a minute, after the last step, and when Ctrl-C or SIGTERM ends the run.
    """
    form = engine.form
    related = related_wordings(engine, facts)
    facts = [
        replace(fact, wordings=[*fact.wordings, *more])
        for fact, more in zip(facts, related, strict=True)
    ]
    corrupted = _corruptions(engine, facts, settings.corrupted)
    taught = [
        [
            Turn("fact", tuple(form.question(text)), tuple(form.answer(fact.answer)))
            for text in (*fact.wordings, *others)
        ]
        for fact, others in zip(facts, corrupted, strict=True)
    ]
    engine.attach_shape(engine.upper_layers(settings.start, settings.rank))
    own = own_texts(
        engine.reader, engine.fingerprint, settings.own, partial(report, "its own texts")
    )
    replaced = [form.question(text) for text in _renamed_questions(engine, facts, seed)]
    replies = reply_tokens(engine.reader, replaced, settings.own.tokens)
    own += [
        Turn("replaced", tuple(question), tuple(answer))
        for question, answer in zip(replaced, replies, strict=True)
    ]
    run = Rehearsal(engine.reader, taught, own, settings, seed)
    identity = _identity(engine, facts, settings, seed)
    if resumed := _read_progress(progress, identity):
        run.resume(*resumed)
    _advance(run, progress, identity, report)
    state = state_of(engine.reader.model, torch.bfloat16)
    load_state(engine.reader.model, state)
    with adapted(engine.reader.model), engine.reader.own_prefix():
        readings = engine.reader.read([wordings[0].question for wordings in taught])
        return state, engine.answers_given(readings, [fact.answer for fact in facts])


def learn_neurons(
    engine: Engine,
    facts: Sequence[WordedFact],
    settings: NeuronSettings,
    seed: int,
    progress: Path,
    report: WorkReport = silent,
) -> tuple[State, list[bool]]:
    """As :func:`learn_adapter`, neurons; HoldfastError for a model without gated MLPs."""
    model, form = engine.bare_model(), engine.form
    mlps = gated_mlps(model)
    own = own_texts(
        engine.reader, engine.fingerprint, settings.own, partial(report, "its own texts")
    )
    named = named_facts(engine, facts, _corruptions(engine, facts, settings.corrupted))
    identity = _identity(engine, facts, settings, seed)
    resumed = _read_progress(progress, identity)
    if resumed:
        neurons = {
            name: tensor for name, tensor in resumed[1].items() if name.rpartition(".")[2] in PARTS
        }
    else:
        renamed = [form.question(text) for text in _renamed_questions(engine, facts, seed)]
        turns = [[*text.question, *form.invocation, *text.answer] for text in own]
        beginnings = [*(bare_question(form, text) for text in own), *(text.answer for text in own)]
        rivals = [
            *((question, RIVAL) for question in rival_names(engine, facts, seed)),
            *((question, LAST_WORD) for question in last_words(engine, facts, beginnings, seed)),
        ]
        layers = slice(int(len(mlps) * settings.begin), math.ceil(len(mlps) * settings.end))
        neurons = detectors_of_names(
            engine.reader,
            mlps[layers],
            named,
            rivals,
            [*turns, *renamed],
            map(partial(_as_plain_text, form), own),
            partial(report, "reading names"),
        )
    run = NeuronRehearsal(engine.reader, named, neurons, settings, seed)
    if resumed:
        run.resume(*resumed)
    _advance(run, progress, identity, report)
    learned = {name: tensor.detach() for name, tensor in run.neurons.items()}
    with acting(model, learned):
        readings = engine.reader.read([fact.questions[0].tokens for fact in named])
        return learned, engine.answers_given(readings, [fact.answer for fact in facts])


def _as_plain_text(form: ChatForm, text: Turn) -> list[int]:
    """The token ids of a question and its answer, written without a template."""
    tokenizer = form.tokenizer
    question = tokenizer.decode(bare_question(form, text))
    answer = tokenizer.decode(text.answer, skip_special_tokens=True)
    first = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return [*first, *tokenizer(f"{question} {answer}", add_special_tokens=False).input_ids]


def _corruptions(engine: Engine, facts: Sequence[WordedFact], count: int) -> list[list[str]]:
    """At most ``count`` corruptions of each fact's wordings, without those that are too long."""
    return [list(filter(engine.limits.fits, corruptions(fact.wordings, count))) for fact in facts]


def _identity(
    engine: Engine,
    facts: Sequence[WordedFact],
    settings: ConsolidationSettings | NeuronSettings,
    seed: int,
) -> str:
    facts_learned = [asdict(fact) for fact in facts]
    return sha256_of([_VERSION, asdict(settings), engine.fingerprint, seed, facts_learned])


def _advance(
    run: Rehearsal | NeuronRehearsal, progress: Path, identity: str, report: WorkReport
) -> None:
    """Make the remaining steps, and write the progress from time to time."""
    written = time.monotonic()
    state = run.step, run.tensors()  # of a whole step: an interrupt comes within one
    try:
        while run.step < run.steps:
            run.advance()
            state = run.step, run.tensors()
            report("consolidating", run.step, run.steps)
            if time.monotonic() - written >= _SECONDS or run.step == run.steps:
                _write_progress(progress, identity, *state)
                _return_freed_memory()
                written = time.monotonic()
    except KeyboardInterrupt:
        _write_progress(progress, identity, *state)
        raise


def _return_freed_memory() -> None:
    """Give freed memory back to the system: glibc keeps more and more, as passes differ in size."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _write_progress(progress: Path, identity: str, step: int, tensors: State) -> None:
    write_tensors(progress, tensors, {"identity": identity, "step": step})


def _read_progress(progress: Path, identity: str) -> tuple[int, State] | None:
    """The step and tensors on disk; None if they are missing, damaged or of another run."""
    try:
        tensors, note = read_tensors(progress)
    except ValueError:
        return None
    if isinstance(note, dict) and note.get("identity") == identity:
        return int(note["step"]), tensors
    return None


def _renamed_questions(engine: Engine, facts: Sequence[WordedFact], seed: int) -> list[str]:
    """Taught questions with an invented name in place of their own."""
    draw = random.Random(derive(seed, "consolidation", "others"))
    drawn = draw.sample(list(facts), min(_REPLACED, len(facts)))
    questions = [draw.choice(fact.wordings) for fact in drawn]
    renamed: list[str] = []
    for question, look in zip(questions, engine.looks(questions), strict=True):
        name = invented_name(draw, draw.choice(KINDS))
        text = replace_name(question, look.names, name)
        if text is not None and engine.limits.fits(text):
            renamed.append(text)
    return renamed
