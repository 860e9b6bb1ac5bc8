"""Draw facts with their probes from sets of invented facts, or from an editing set.

    python -m benchmarks.fact_sets harbour --facts 100 --seed 7 --out facts.jsonl
    python -m benchmarks.fact_sets harbour chronicle --facts 500 --lessons 50 --corrections 25 \
        --out facts.jsonl
    python -m benchmarks.fact_sets --pararel FOLDER --edits 200 --out edits.jsonl

`holdfast learn` takes the file, and `holdfast evaluate` finds the probes in the memory's facts.
Develop on the set `garden`; tune nothing on the others. FOLDER holds ParaRel's `patterns` and
`triples`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from benchmarks.lessons import in_lessons
from holdfast.core.files import write_text_atomically
from holdfast.core.seeding import derive
from holdfast.memory.evaluation.pararel import draw_edits

FOLDER = Path(__file__).parent / "facts"
NAMES = ("harbour", "workshop", "chronicle", "garden")
_MOST = 4  # relations per entity, until there are too few entities
_UNTAUGHT_ENTITIES = 0.1  # fraction of each kind, at least three: entities in no fact

Fact = dict[str, Any]


@cache
def load_set(name: str) -> dict[str, Any]:
    """Load a set from the folder `facts`."""
    values: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return values


def draw(
    name: str,
    facts: int,
    seed: int,
    *,
    held_out: int | None = 2,
    others: int = 1,
    untaught: int = 2,
) -> list[Fact]:
    """Draw facts of a set, in random order, each with its probes in ``details``.

    Every entity has one to four relations, or more if there are too few entities. No two facts of
    a relation have the same answer, so every reverse question has one answer. A tenth of the
    entities is in no fact.

    Numbers per fact: held_out: other wordings, never learned, None for all; others: questions of
    the fact's relation about entities in no fact; untaught: questions about its entity that no fact
    answers, alternately outside all relations and of a relation that the entity's facts lack.
    Raises ValueError if the set has too few facts.
    """
    fact_set = load_set(name)
    taught, spare = _entities(fact_set, seed)
    relations = {about["name"]: about for about in fact_set["relations"]}
    pairs = _pairs(fact_set, taught, facts, seed)
    of_entity: dict[str, set[str]] = defaultdict(set)
    for entity, relation in pairs:
        of_entity[entity].add(relation)
    answers = {
        name: _shuffled(dict.fromkeys(about["answers"]), seed, "answers", name)
        for name, about in relations.items()
    }
    questions = _untaught(fact_set, of_entity, seed)
    drawn = []
    for entity, relation in pairs:
        about = relations[relation]
        draw_of = random.Random(derive(seed, "fact", entity, relation))
        wordings = _shuffled(about["wordings"], seed, "wordings", entity, relation)
        elsewhere = draw_of.sample(spare[about["kind"]], min(others, len(spare[about["kind"]])))
        drawn.append(
            {
                "question": filled(about["question"], entity),
                "answer": answers[relation].pop(),
                "details": {
                    "set": name,
                    "relation": relation,
                    "entity": entity,
                    "held_out": [filled(text, entity) for text in wordings[:held_out]],
                    "sentence": filled(about["sentence"], entity),
                    "others": [filled(about["question"], other) for other in elsewhere],
                    "untaught": [
                        questions[entity].pop() for _ in range(untaught) if questions[entity]
                    ],
                },
            }
        )
    for fact in drawn:
        _add_reverse(fact, relations[fact["details"]["relation"]])
    return drawn


def corrected(fact: Fact, seed: int, in_use: set[str]) -> Fact:
    """Give the fact an answer of its relation that no fact has, and add it to ``in_use``.

    in_use: the relation's answers in use. Raises ValueError if that is all of them.
    """
    about = next(
        relation
        for relation in load_set(fact["details"]["set"])["relations"]
        if relation["name"] == fact["details"]["relation"]
    )
    free = [answer for answer in dict.fromkeys(about["answers"]) if answer not in in_use]
    if not free:
        raise ValueError(f"{about['name']}: every answer is in use")
    answer = random.Random(derive(seed, "correction", fact["question"])).choice(free)
    in_use.add(answer)
    changed = {**fact, "answer": answer, "details": dict(fact["details"])}
    _add_reverse(changed, about)
    return changed


def filled(text: str, entity: str = "", answer: str = "") -> str:
    """Fill entity and answer into a text of a set, and begin it with a capital letter."""
    text = text.replace("{x}", entity).replace("{a}", answer)
    return text[:1].upper() + text[1:]


def _add_reverse(fact: Fact, about: dict[str, Any]) -> None:
    if about["reverse"]:
        question = filled(about["reverse"], answer=fact["answer"])
        fact["details"]["reverse"] = {"question": question, "answer": fact["details"]["entity"]}


def _entities(
    fact_set: dict[str, Any], seed: int
) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
    """The entities that may be taught, as (entity, kind), and those in no fact, by kind."""
    taught, spare = [], {}
    for kind, about in fact_set["kinds"].items():
        entities = _shuffled(about["entities"], seed, "spare", kind)
        count = max(3, round(len(entities) * _UNTAUGHT_ENTITIES))
        spare[kind] = entities[:count]
        taught += [(entity, kind) for entity in entities[count:]]
    return _shuffled(taught, seed, "entities"), spare


def _pairs(
    fact_set: dict[str, Any], entities: Sequence[tuple[str, str]], facts: int, seed: int
) -> list[tuple[str, str]]:
    """Draw the (entity, relation) pairs to teach, in random order."""
    of_kind: dict[str, list[str]] = defaultdict(list)
    answers = {
        relation["name"]: len(set(relation["answers"])) for relation in fact_set["relations"]
    }
    for relation in fact_set["relations"]:
        of_kind[relation["kind"]].append(relation["name"])
    waiting: list[tuple[str, str]] = []
    later: list[tuple[int, str, str]] = []
    for entity, kind in entities:
        draw_of = random.Random(derive(seed, "relations", entity))
        names = draw_of.sample(of_kind[kind], len(of_kind[kind]))
        count = draw_of.randint(1, _MOST)
        waiting += [(entity, name) for name in names[:count]]
        later += [(place, entity, name) for place, name in enumerate(names[count:])]
    waiting += [(entity, name) for _, entity, name in sorted(later, key=lambda entry: entry[0])]
    pairs: list[Any] = []
    for entity, name in waiting:
        if len(pairs) < facts and answers[name]:
            answers[name] -= 1
            pairs.append((entity, name))
    if len(pairs) < facts:
        raise ValueError(f"{fact_set['name']}: has {len(pairs)} facts to draw, not {facts}")
    return _shuffled(pairs, seed, "order")


def _untaught(
    fact_set: dict[str, Any], of_entity: dict[str, set[str]], seed: int
) -> dict[str, list[str]]:
    """Questions about each entity that no fact answers, both kinds in turn, to be popped."""
    kinds = {
        entity: kind for kind, about in fact_set["kinds"].items() for entity in about["entities"]
    }
    questions = {}
    for entity, taught in of_entity.items():
        never = _shuffled(fact_set["untaught"][kinds[entity]], seed, "never", entity)
        elsewhere = [
            relation["question"]
            for relation in fact_set["relations"]
            if relation["kind"] == kinds[entity] and relation["name"] not in taught
        ]
        elsewhere = _shuffled(elsewhere, seed, "elsewhere", entity)
        turns = []
        for place in range(max(len(never), len(elsewhere))):
            turns += [*never[place : place + 1], *elsewhere[place : place + 1]]
        questions[entity] = [filled(text, entity) for text in reversed(turns)]
    return questions


def _shuffled(values: Any, seed: int, *purpose: str | int) -> list[Any]:
    values = list(values)
    random.Random(derive(seed, *purpose)).shuffle(values)
    return values


def several(names: Sequence[str], facts: int, seed: int, **options: Any) -> list[Fact]:
    """Draw facts of several sets, equally many of each, in random order."""
    shares = [facts // len(names) + (place < facts % len(names)) for place in range(len(names))]
    drawn = [
        fact
        for name, share in zip(names, shares, strict=True)
        for fact in draw(name, share, seed, **options)
    ]
    return _shuffled(drawn, seed, "sets") if len(names) > 1 else drawn


def main() -> None:
    """Draw the facts and write the file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fact_sets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sets", nargs="*", metavar="SET", help=str(NAMES))
    parser.add_argument("--facts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--lessons", default="one", help="one, uneven (1 to 20), or a number")
    parser.add_argument("--size", type=int, help="facts of every lesson, instead of --lessons")
    parser.add_argument("--corrections", type=int, default=0)
    parser.add_argument("--held-out", default="2", help="other wordings of a fact, or all")
    parser.add_argument("--others", type=int, help="default: 1 of a set, 2 of an edit")
    parser.add_argument("--pararel", type=Path, help="folder of the editing set")
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument(
        "--form", choices=("complete", "question"), default="complete", help="of a taught edit"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if unknown := set(options.sets) - set(NAMES):
        parser.error(f"{min(unknown)}: is no set; there are {', '.join(NAMES)}")
    if options.pararel is not None and options.corrections:
        parser.error("--corrections: is for the invented sets")
    held_out = None if options.held_out == "all" else int(options.held_out)
    try:
        if options.pararel is not None:
            others = 2 if options.others is None else options.others
            facts = draw_edits(
                options.pararel, options.edits, options.seed, held_out, others, options.form
            )
        elif options.sets:
            others = 1 if options.others is None else options.others
            facts = several(
                options.sets, options.facts, options.seed, held_out=held_out, others=others
            )
        else:
            parser.error(f"name one or more of {', '.join(NAMES)}, or --pararel")
        lines = in_lessons(
            facts, options.lessons, options.size, options.corrections, options.seed, corrected
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    write_text_atomically(options.out, text)
    lessons = len({line["task"] for line in lines})
    print(
        f"{len(lines)} lines in {lessons} lessons, {options.corrections} corrections: {options.out}"
    )


if __name__ == "__main__":
    main()
