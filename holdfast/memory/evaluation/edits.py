"""Measure a memory as model editors are measured, by the answers that it really gives.

Efficacy: the edit's question gets its answer; generality: other wordings do; locality: neighbours
get the untouched model's answers, to the letter; portability: questions that need the edit get an
accepted answer; fluency: how varied the words are that continue a text. Token accuracy under
teacher forcing does not say what a model answers (Yang et al. 2025, 2502.11177).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.memory.evaluation.asking import Report, Sides
from holdfast.memory.evaluation.edit_sets import Edit, EditSet
from holdfast.memory.evaluation.measure import measured
from holdfast.memory.evaluation.probes import EverydayQuestion
from holdfast.memory.evaluation.result import VERSION, Measure, MemoryEvaluation
from holdfast.memory.evaluation.stages import (
    StageResult,
    Stages,
    exactly,
    generated,
    kept,
    texts,
    unknown,
)
from holdfast.memory.memory import Memory, Told
from holdfast.streams.item import question_key

#: The rows of the table: measure, label, unit.
LABELS = (
    ("efficacy", "efficacy: the edit is answered", "share"),
    ("efficacy_from_weights", "  from the weights", "share"),
    ("generality", "generality: in other words", "share"),
    ("generality_from_weights", "  from the weights", "share"),
    ("neighbours_unchanged", "locality: neighbours as before", "share"),
    ("neighbours_accepted", "  taken for an edit", "share"),
    ("portability", "portability: questions that need it", "share"),
    ("fluency", "fluency: entropy of n-grams, bits", "number"),
    ("fluency_untouched", "  of the untouched model", "number"),
    ("everyday_kept", "everyday questions kept", "share"),
    ("everyday_accepted", "  taken for an edit", "share"),
)


def evaluate_edits(
    memory: Memory,
    edited: EditSet,
    everyday: Sequence[EverydayQuestion],
    report: Told = lambda *_: None,
    out: Path | None = None,
) -> MemoryEvaluation:
    """Measure a memory that was taught the edits; arguments as of ``measure.evaluate``.

    Raises HoldfastError if the memory has not learned an edit, or has learned another answer.
    """
    _check_taught(memory, edited)
    edits = [asdict(edit) for edit in edited.edits]
    identity = sha256_of(
        [VERSION, memory.fingerprint, edits, [vars(question) for question in everyday]]
    )
    about = {"facts": len(edits), "set": edited.name, "limit": None}
    stages_of = partial(_stages, edits=edited.edits, everyday=everyday)
    return measured(memory, identity, about, stages_of, report, out)


def _check_taught(memory: Memory, edited: EditSet) -> None:
    """Raise HoldfastError unless the memory has learned every edit."""
    learned = {question_key(fact.question): fact.answer for fact in memory.learned}
    for edit in edited.edits:
        if learned.get(question_key(edit.question)) != edit.answer:
            raise HoldfastError(
                f"{memory.directory}: has not learned {edit.question!r:.60}; give a new directory, "
                "and the edits are taught there"
            )


def _stages(sides: Sides, edits: Sequence[Edit], everyday: Sequence[EverydayQuestion]) -> Stages:
    numbered = [(edit, sides.place(edit.question)) for edit in edits]
    taught = [(edit.question, [edit.answer], place) for edit, place in numbered]
    wordings = [(text, [edit.answer], place) for edit, place in numbered for text in edit.wordings]
    neighbours = list(dict.fromkeys(text for edit in edits for text in edit.neighbours))
    ported = [(*asked, place) for edit, place in numbered for asked in edit.portability]
    generation = list(dict.fromkeys(text for edit in edits for text in edit.generation))
    return {
        "efficacy": partial(exactly, sides, "efficacy", taught),
        "generality": partial(exactly, sides, "generality", wordings),
        "locality": partial(unknown, sides, "neighbours", neighbours),
        "portability": partial(generated, sides, "portability", ported),
        "fluency": partial(_fluency, sides, generation),
        "everyday": partial(kept, sides, everyday),
    }


def _fluency(sides: Sides, prompts: Sequence[str], report: Report) -> StageResult:
    """Mean n-gram entropy of the memory's continuations of texts, and of the untouched model's."""
    if not prompts:
        return {}, []
    answers = sides.memory(prompts, report)
    replies = {"fluency": texts(answers), "fluency_untouched": sides.untouched(prompts)}
    return {
        name: Measure(len(prompts), sum(map(n_gram_entropy, side)) / len(side))
        for name, side in replies.items()
    }, []


def n_gram_entropy(text: str) -> float:
    """Mean entropy in bits of a text's pairs of words (weight 2/3) and triples (weight 4/3).

    Source: 1809.05972, with the weights of 2202.05262.
    """
    words = text.split()
    return sum(weight * _entropy(words, size) for size, weight in ((2, 2 / 3), (3, 4 / 3))) / 2


def _entropy(words: Sequence[str], size: int) -> float:
    counts = Counter(zip(*(words[start:] for start in range(size)), strict=False))
    total = sum(counts.values())
    return -sum(count / total * math.log2(count / total) for count in counts.values())
