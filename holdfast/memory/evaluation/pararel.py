"""Draw counterfactual edits from ParaRel: triples of T-REx, and patterns that put them in words.

A folder has `patterns/P*.jsonl` and `triples/P*.jsonl`. Source: Elazar et al. 2021, 2102.01017.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.core.seeding import derive

Fact = dict[str, Any]
COMPLETE = "Complete: {}"  # asks for the continuation of a text
_LEAST = 3  # patterns of a relation: one is taught, two are held out
# What a person would ask, instead of a text to complete. Relations in which a subject has
# many objects (borders, members, twin cities, diplomatic relations) are left out: another object
# need not be false there.
_QUESTIONS = {
    "P101": "What field does {x} work in?",
    "P108": "Which company does {x} work for?",
    "P127": "Who owns {x}?",
    "P131": "Where is {x} located?",
    "P1303": "Which instrument does {x} play?",
    "P136": "What kind of music does {x} play?",
    "P1412": "Which language did {x} use?",
    "P159": "Where are the headquarters of {x}?",
    "P17": "In which country is {x}?",
    "P178": "Who developed {x}?",
    "P20": "Where did {x} die?",
    "P279": "What is {x} a subclass of?",
    "P30": "On which continent is {x}?",
    "P364": "What is the original language of {x}?",
    "P39": "Which position does {x} hold?",
    "P407": "In which language was {x} written?",
    "P449": "On which channel was {x} first shown?",
    "P937": "In which city did {x} work?",
}


@dataclass(frozen=True)
class Relation:
    """patterns: texts with ``[X]`` that the object continues; triples: (subject, object)."""

    name: str
    patterns: tuple[str, ...]
    triples: tuple[tuple[str, str], ...]

    @cached_property
    def objects(self) -> dict[str, set[str]]:
        """All objects of each subject."""
        objects: dict[str, set[str]] = defaultdict(set)
        for subject, thing in self.triples:
            objects[subject].add(thing)
        return objects

    @cached_property
    def subjects(self) -> dict[str, list[str]]:
        """All subjects of each object, in the file's order."""
        subjects: dict[str, list[str]] = defaultdict(list)
        for subject, thing in self.triples:
            subjects[thing].append(subject)
        return subjects

    def asked(self, subject: str, form: str) -> str:
        """The question to teach about a subject; form: as of :func:`draw_edits`."""
        if form == "question":
            return _QUESTIONS[self.name].replace("{x}", subject)
        return _completed(self.patterns[0], subject)


def _completed(pattern: str, subject: str) -> str:
    """A pattern as a question: ``Complete: Alan Turing works in the field of``."""
    return COMPLETE.format(pattern.replace("[X]", subject))


def read_relations(folder: Path) -> list[Relation]:
    """The relations of ``_QUESTIONS`` with at least three patterns ending in the object, by name.

    Raises ValueError if the folder has none.
    """
    relations = []
    for path in sorted((folder / "patterns").glob("P*.jsonl")):
        patterns = []
        for line in path.read_text(encoding="utf-8").splitlines():
            text = " ".join(json.loads(line)["pattern"].rstrip(" .").split())
            if text.endswith("[Y]") and "[X]" in text:
                patterns.append(text.removesuffix("[Y]").strip())
        rows = (folder / "triples" / path.name).read_text(encoding="utf-8").splitlines()
        triples = [(row["sub_label"], row["obj_label"]) for row in map(json.loads, rows)]
        unique = tuple(dict.fromkeys(patterns))
        if len(unique) >= _LEAST and path.stem in _QUESTIONS:
            relations.append(Relation(path.stem, unique, tuple(dict.fromkeys(triples))))
    if not relations:
        raise ValueError(f"{folder}: holds no patterns/P*.jsonl with their triples")
    return relations


def draw_edits(
    folder: Path,
    edits: int,
    seed: int,
    held_out: int | None = 2,
    others: int = 2,
    form: str = "complete",
) -> list[Fact]:
    """Draw facts whose answer is a false object of the relation, evenly over the relations.

    held_out: how many further patterns to ask, never taught, None for all; others: how many
    neighbours, in no edit, with the same true object if there are any; form: ``complete`` teaches
    a pattern to complete, ``question`` a question. ``untaught`` asks what relations that share no
    pattern with this one (to be located in) say of the subject.
    Raises ValueError if the folder has too few subjects.
    """
    relations = read_relations(folder)
    chosen = _subjects(relations, edits, seed)
    edited = {subject for _, subject in chosen}
    drawn = []
    for relation, subject in chosen:
        draw = random.Random(derive(seed, "edit", relation.name, subject))
        things = sorted(set(relation.subjects) - relation.objects[subject])
        was = min(relation.objects[subject])
        patterns = draw.sample(relation.patterns[1:], len(relation.patterns) - 1)
        asked = patterns[:held_out]
        near = [name for name in relation.subjects[was] if name not in edited]
        far = [name for name in relation.objects if name not in edited and name not in set(near)]
        neighbours = [*draw.sample(near, len(near)), *draw.sample(far, min(others, len(far)))]
        untaught = [
            other.asked(subject, form)
            for other in relations
            if subject in other.objects and not set(other.patterns) & set(relation.patterns)
        ]
        drawn.append(
            {
                "question": relation.asked(subject, form),
                "answer": draw.choice(things),
                "details": {
                    "set": "pararel",
                    "relation": relation.name,
                    "entity": subject,
                    "was": was,
                    "held_out": [_completed(pattern, subject) for pattern in asked],
                    "sentence": patterns[-1].replace("[X]", subject) if asked != patterns else None,
                    "others": [relation.asked(name, form) for name in neighbours[:others]],
                    "untaught": untaught,
                },
            }
        )
    return drawn


def _subjects(relations: list[Relation], edits: int, seed: int) -> list[tuple[Relation, str]]:
    """Pairs of relation and subject, the relations in turn, then shuffled; no subject twice."""
    waiting = {}
    for relation in relations:
        names = list(relation.objects)
        random.Random(derive(seed, "subjects", relation.name)).shuffle(names)
        waiting[relation.name] = names
    chosen: list[tuple[Relation, str]] = []
    used: set[str] = set()
    while len(chosen) < edits and any(waiting.values()):
        for relation in relations:
            names = waiting[relation.name]
            while names and names[-1] in used:
                names.pop()
            if names and len(chosen) < edits:
                used.add(names[-1])
                chosen.append((relation, names.pop()))
    if len(chosen) < edits:
        raise ValueError(f"there are {len(chosen)} subjects to edit, not {edits}")
    random.Random(derive(seed, "order")).shuffle(chosen)
    return chosen
