"""Draw facts with their probes from a set of invented ones, or from an editing set.

    python -m benchmarks.fact_sets harbour --facts 100 --seed 7 --out facts.jsonl
    python -m benchmarks.fact_sets harbour chronicle --facts 500 --lessons 50 --corrections 25 \
        --out facts.jsonl
    python -m benchmarks.fact_sets --pararel FOLDER --edits 200 --out edits.jsonl

`holdfast learn` takes the file, and `holdfast evaluate` finds the probes in the memory's facts. The
set `garden` is the development set: nothing may be tuned on the others. FOLDER holds ParaRel's
`patterns` and `triples`.
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
_MOST = 4  # relations of an entity, as long as there are entities
_UNTAUGHT_ENTITIES = 0.1  # of a kind, at least three: for questions of a taught relation

Fact = dict[str, Any]


@cache
def load_set(name: str) -> dict[str, Any]:
    """A set of the folder `facts`, by its name."""
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
    """Facts of a set, in random order, each with probes in its details.

    Every entity has one to four relations, and more where there are too few entities. No two facts
    of a relation have the same answer, so the other side of a fact is certain. A tenth of the
    entities is in no fact.

    held_out: other wordings that are never learned, None for all; others: questions of the fact's
    relation about entities of no fact; untaught: questions about its entity, in turn of a kind
    that no fact answers and of a relation that is taught of other entities only.
    Raises ValueError where the set has too few.
    """
    chosen = load_set(name)
    taught, spare = _entities(chosen, seed)
    relations = {one["name"]: one for one in chosen["relations"]}
    pairs = _pairs(chosen, taught, facts, seed)
    of_entity: dict[str, set[str]] = defaultdict(set)
    for entity, relation in pairs:
        of_entity[entity].add(relation)
    answers = {
        name: _shuffled(dict.fromkeys(one["answers"]), seed, "answers", name)
        for name, one in relations.items()
    }
    asked = _untaught(chosen, of_entity, seed)
    drawn = []
    for entity, relation in pairs:
        about = relations[relation]
        draw_of = random.Random(derive(seed, "fact", entity, relation))
        wordings = _shuffled(about["wordings"], seed, "wordings", entity, relation)
        elsewhere = draw_of.sample(spare[about["kind"]], min(others, len(spare[about["kind"]])))
        drawn.append(
            {
                **_told(about, entity, answers[relation].pop()),
                "details": {
                    "set": name,
                    "relation": relation,
                    "entity": entity,
                    "held_out": [filled(text, entity) for text in wordings[:held_out]],
                    "sentence": filled(about["sentence"], entity),
                    "others": [filled(about["question"], one) for one in elsewhere],
                    "untaught": [asked[entity].pop() for _ in range(untaught) if asked[entity]],
                },
            }
        )
    for fact in drawn:
        _add_reverse(fact, relations[fact["details"]["relation"]])
    return drawn


def corrected(fact: Fact, seed: int, taken: set[str]) -> Fact:
    """The fact with an answer of its relation that no fact has; ``taken`` is added to.

    taken: the relation's answers that are in use. Raises ValueError when all are.
    """
    about = next(
        one
        for one in load_set(fact["details"]["set"])["relations"]
        if one["name"] == fact["details"]["relation"]
    )
    free = [one for one in dict.fromkeys(about["answers"]) if one not in taken]
    if not free:
        raise ValueError(f"{about['name']}: every answer is in use")
    answer = random.Random(derive(seed, "correction", fact["question"])).choice(free)
    taken.add(answer)
    changed = {**fact, "answer": answer, "details": dict(fact["details"])}
    _add_reverse(changed, about)
    return changed


def filled(text: str, entity: str = "", answer: str = "") -> str:
    """A text of a set with its entity or answer, and a capital letter at its beginning."""
    text = text.replace("{x}", entity).replace("{a}", answer)
    return text[:1].upper() + text[1:]


def _told(about: dict[str, Any], entity: str, answer: str) -> Fact:
    return {"question": filled(about["question"], entity), "answer": answer}


def _add_reverse(fact: Fact, about: dict[str, Any]) -> None:
    if about["reverse"]:
        question = filled(about["reverse"], answer=fact["answer"])
        fact["details"]["reverse"] = {"question": question, "answer": fact["details"]["entity"]}


def _entities(
    chosen: dict[str, Any], seed: int
) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
    """The entities that may be taught, each with its kind, and those of each kind that are not."""
    taught, spare = [], {}
    for kind, about in chosen["kinds"].items():
        entities = _shuffled(about["entities"], seed, "spare", kind)
        count = max(3, round(len(entities) * _UNTAUGHT_ENTITIES))
        spare[kind] = entities[:count]
        taught += [(entity, kind) for entity in entities[count:]]
    return _shuffled(taught, seed, "entities"), spare


def _pairs(
    chosen: dict[str, Any], entities: Sequence[tuple[str, str]], facts: int, seed: int
) -> list[tuple[str, str]]:
    """Entities and relations to be taught, in random order."""
    of_kind: dict[str, list[str]] = defaultdict(list)
    answers = {one["name"]: len(set(one["answers"])) for one in chosen["relations"]}
    for one in chosen["relations"]:
        of_kind[one["kind"]].append(one["name"])
    waiting: list[tuple[str, str]] = []
    later: list[tuple[int, str, str]] = []
    for entity, kind in entities:
        draw_of = random.Random(derive(seed, "relations", entity))
        names = draw_of.sample(of_kind[kind], len(of_kind[kind]))
        count = draw_of.randint(1, _MOST)
        waiting += [(entity, name) for name in names[:count]]
        later += [(place, entity, name) for place, name in enumerate(names[count:])]
    waiting += [(entity, name) for _, entity, name in sorted(later, key=lambda one: one[0])]
    pairs = []
    for entity, name in waiting:
        if len(pairs) < facts and answers[name]:
            answers[name] -= 1
            pairs.append((entity, name))
    if len(pairs) < facts:
        raise ValueError(f"{chosen['name']}: has {len(pairs)} facts to draw, not {facts}")
    return _shuffled(pairs, seed, "order")


def _untaught(
    chosen: dict[str, Any], of_entity: dict[str, set[str]], seed: int
) -> dict[str, list[str]]:
    """Questions about each entity that no fact answers; both kinds in turn, to be popped."""
    kinds = {
        entity: kind for kind, about in chosen["kinds"].items() for entity in about["entities"]
    }
    found = {}
    for entity, taught in of_entity.items():
        never = _shuffled(chosen["untaught"][kinds[entity]], seed, "never", entity)
        elsewhere = [
            one["question"]
            for one in chosen["relations"]
            if one["kind"] == kinds[entity] and one["name"] not in taught
        ]
        elsewhere = _shuffled(elsewhere, seed, "elsewhere", entity)
        turns = []
        for place in range(max(len(never), len(elsewhere))):
            turns += [*never[place : place + 1], *elsewhere[place : place + 1]]
        found[entity] = [filled(text, entity) for text in reversed(turns)]
    return found


def _shuffled(values: Any, seed: int, *purpose: str | int) -> list[Any]:
    values = list(values)
    random.Random(derive(seed, *purpose)).shuffle(values)
    return values


def several(names: Sequence[str], facts: int, seed: int, **options: Any) -> list[Fact]:
    """Facts of several sets, as many of each, in random order."""
    shares = [facts // len(names) + (place < facts % len(names)) for place in range(len(names))]
    drawn = [
        fact
        for name, share in zip(names, shares, strict=True)
        for fact in draw(name, share, seed, **options)
    ]
    return _shuffled(drawn, seed, "sets") if len(names) > 1 else drawn


def main() -> None:
    """Draw, and write the file."""
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
    given = parser.parse_args()
    if unknown := set(given.sets) - set(NAMES):
        parser.error(f"{min(unknown)}: is no set; there are {', '.join(NAMES)}")
    if given.pararel is not None and given.corrections:
        parser.error("--corrections: is for the invented sets")
    held_out = None if given.held_out == "all" else int(given.held_out)
    try:
        if given.pararel is not None:
            others = 2 if given.others is None else given.others
            facts = draw_edits(given.pararel, given.edits, given.seed, held_out, others, given.form)
        elif given.sets:
            others = 1 if given.others is None else given.others
            facts = several(given.sets, given.facts, given.seed, held_out=held_out, others=others)
        else:
            parser.error(f"name one or more of {', '.join(NAMES)}, or --pararel")
        lines = in_lessons(
            facts, given.lessons, given.size, given.corrections, given.seed, corrected
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    write_text_atomically(given.out, text)
    lessons = len({line["task"] for line in lines})
    print(f"{len(lines)} lines in {lessons} lessons, {given.corrections} corrections: {given.out}")


if __name__ == "__main__":
    main()
