"""Forget facts in a copy of a memory, and measure with our metrics and TOFU's what is left.

    python -m benchmarks.tofu MEMORY FOLDER --facts 10 --seed 41 > forgetting.json

FOLDER holds real_authors_perturbed.json and world_facts_perturbed.json of TOFU's data set. The
memory's lessons need different names. Lessons learned without the facts, from another seed,
replace TOFU's retain model; the share of right answers replaces its ROUGE-L.
Source: Maini et al. 2024, 2401.06121.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import harmonic_mean, mean
from typing import Any

import torch
from scipy.stats import ks_2samp

from holdfast.core.seeding import derive
from holdfast.memory.batch import learn_batch, read_lesson
from holdfast.memory.engine import Adapter, Engine
from holdfast.memory.evaluation.measure import sides_of
from holdfast.memory.forgetting import forget
from holdfast.memory.memory import Memory
from holdfast.memory.record import Gone, without
from holdfast.model.adapter import State
from holdfast.streams.batches import fact_key
from holdfast.streams.item import Item, evenly, says

WRONG, SAMPLE = 5, 100  # wrong answers per question; questions in other words, at most
PARTS = ("right", "probability", "truth")  # the parts of TOFU's model utility
Asked = tuple[str, list[str]]  # a question; its right answer, then wrong ones


@torch.no_grad()
def per_token(engine: Engine, adapter: Adapter | None, asked: Asked) -> list[float]:
    """P(answer | question)^(1 / tokens) of each answer; adapter: None for the untouched model."""
    readings = engine.read(asked[:1])[0] * len(asked[1])
    using = engine.using(adapter, readings) if adapter else contextlib.nullcontext(readings)
    with using as read:
        logits = engine.reader.answer_logits(read, list(map(engine.form.answer, asked[1])))
    return [float(probability) for probability in (-logits.losses()).exp()]


def truth_ratio(right: float, *wrong: float) -> float:
    """Mean per-token probability of the wrong answers over the right one's. Source: eq. 1."""
    return mean(wrong) / right


def wordings(fact: Item, facts: Sequence[Item], seed: int) -> list[Asked]:
    """The taught question and the held-out ones. Wrong answers are those of the fact's relation
    or, if it has none, of all facts.
    """
    about = fact.details.get("relation")
    alike = {row.answer for row in facts if row.details.get("relation") == about} - {fact.answer}
    pool = sorted(alike or {row.answer for row in facts} - {fact.answer})
    wrong = random.Random(derive(seed, fact.question)).sample(pool, len(pool))[:WRONG]
    texts = (fact.question, *fact.details.get("held_out", ()))
    return [(text, [fact.answer, *wrong]) for text in texts]


def by_memory(memory: Memory, name: str, questions: list[Asked]) -> dict[str, float]:
    """TOFU's numbers for a set, each question with the weights that the memory uses for it."""
    sides, rows = sides_of(memory), []
    replies = sides.memory([question for question, _ in questions], lambda *_: None)
    for asked, reply in zip(questions, replies, strict=True):
        place = sides.place(reply.fact.question) if reply.fact else None
        adapter = None if place is None else sides.answerer.adapter(place)
        right, *wrong = per_token(sides.engine, adapter, asked)
        is_right, truth = says(reply.text, asked[1][:1]), max(0.0, 1 - truth_ratio(right, *wrong))
        share = right / (right + sum(wrong)) if name.endswith("_perturbed") else right
        rows.append((is_right, share, truth, is_right and reply.source == "weights", reply.taught))
    names = ("asked", *PARTS, "right_from_weights", "taken_for_taught")
    return dict(zip(names, (len(rows), *map(mean, zip(*rows, strict=True))), strict=True))


def measure(memory: Memory, sets: dict[str, list[Asked]], count: int, seed: int) -> dict[str, Any]:
    """All numbers before and after forgetting ``count`` facts. sets: common knowledge."""
    engine, facts, known, sets = memory.engine(), memory.learned, list(sets), dict(sets)
    gone = random.Random(seed).sample(facts, count)
    lesson = {fact_key(item): task.name for task in memory.tasks for item in task.items}
    asked = {fact_key(fact): wordings(fact, facts, seed) for fact in facts}
    for name, some in (("forgotten", gone), ("others", [f for f in facts if f not in gone])):
        pairs = [asked[fact_key(fact)] for fact in some]
        sets[name] = [first for first, *_ in pairs]
        sets[f"{name} in other words"] = evenly([row for _, *rows in pairs for row in rows], SAMPLE)

    def left(label: str, weights: dict[str, State]) -> dict[str, list[Any]]:
        """P(answer | wording) and truth ratio of each fact. weights: of the lessons, by name."""
        probabilities, ratios = [], []
        for key, length in ((fact_key(f), len(engine.form.answer(f.answer))) for f in gone):
            pairs = weights.get(lesson[key], {}).items()
            factors = {name: value.float() for name, value in pairs if ".lora_" in name}
            adapter = Adapter(f"{label} {lesson[key]}", partial(dict, factors)) if factors else None
            each = [per_token(engine, adapter, question) for question in asked[key]]
            probabilities.append([right**length for right, *_ in each])
            ratios.append(truth_ratio(*each[0]))
        return {"probabilities": probabilities, "truth_ratios": ratios}

    def now(label: str) -> dict[str, Any]:
        lessons, place = memory.record.lessons, memory.directory
        weights = left(label, {row.name: read_lesson(place, row.file)[0] for row in lessons})
        result = {name: by_memory(memory, name, rows) for name, rows in sets.items() if rows}
        nine = [result[name][part] for name in (*known, "others") for part in PARTS]
        return {**weights, **result, "model_utility": harmonic_mean(nine)}

    learned, keys = {}, set(map(fact_key, gone))
    affected = [task for task in memory.tasks if task.name in {lesson[key] for key in keys}]
    for task in without(affected, Gone(frozenset(keys))):
        start = derive(memory.seed, "never taught", task.name)
        learned[task.name] = learn_batch(engine, 1, task, start, lambda *_: None).adapter
    sides = {"never taught": left("never", learned), "untouched": left("", {})}
    sides["before"] = now("before")
    printed = forget(memory, [fact.question for fact in gone])
    sides["after"] = now("after")
    for side in sides.values():
        never = sides["never taught"]["truth_ratios"]
        side["forget_quality"] = ks_2samp(side["truth_ratios"], never).pvalue
    return {"printed": asdict(printed), **sides}


def main() -> None:
    """Measure on a copy of the memory, and print JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tofu", description=__doc__)
    parser.add_argument("memory", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--facts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=41)
    options = parser.parse_args()
    sets = {}
    for path in sorted(options.folder.glob("*_perturbed.json")):
        rows = map(json.loads, path.read_text("utf-8").splitlines())
        sets[path.stem] = [(r["question"], [r["answer"], *r["perturbed_answer"]]) for r in rows]
    if len(sets) != 2:
        parser.error(f"{options.folder}: needs TOFU's two files *_perturbed.json")
    with tempfile.TemporaryDirectory() as folder:
        copy = Memory(shutil.copytree(options.memory, Path(folder) / "memory"))
        count = len(copy.learned)
        if not 0 < options.facts < count:
            parser.error(f"--facts {options.facts}: the memory has {count}; give fewer, at least 1")
        if len({fact.answer for fact in copy.learned}) == 1:
            parser.error(f"{options.memory}: all facts have one answer, so there is no wrong one")
        print(json.dumps(measure(copy, sets, options.facts, options.seed), indent=1))


if __name__ == "__main__":
    main()
