"""How well the gate's looks tell questions apart: `python -m benchmarks.second_look smollm2`.

Pairs of questions of the library of relations, about invented names: two wordings of one relation,
and wordings of two relations of one kind. The projection is fitted to the other half of the
relations. Prints each look's AUROC, and the constant at which a tenth of the pairs of two relations
would be accepted.
"""

from __future__ import annotations

import random
import sys

import numpy as np
import torch

from holdfast.memory.chat.engine import Engine
from holdfast.memory.chat.gate_tuning import _project
from holdfast.memory.chat.invented import invented_name
from holdfast.memory.chat.relations import ENTITY, relations
from holdfast.memory.chat.second_look import BY_INFORMATION, mutual_information
from holdfast.memory.chat.words import agreement
from holdfast.model.fetch import fetch

_PAIRS = 300
_ACCEPTED = 0.1


def main() -> None:
    engine = Engine(fetch(sys.argv[1]))
    draw = random.Random(1)
    pairs, same = _pairs(draw)
    vectors = _vectors(engine, [text for pair in pairs for text in pair], draw)
    first = []
    for (taught, asked), (one, other) in zip(pairs, vectors.view(_PAIRS, 2, -1), strict=True):
        covered, extra = agreement(engine.naming(taught), engine.naming(asked))
        first.append(engine.tuning.score(float(one @ other), covered, extra))
    information = mutual_information(engine.reader, engine.naming, pairs)
    alike = np.array(same)
    looks = {
        "first": np.array(first),
        "information": np.array(information),
        "both": np.array(first) + BY_INFORMATION * np.array(information),
    }
    for name, scores in looks.items():
        right = (scores[alike][:, None] > scores[~alike][None]).mean()
        limit = np.quantile(scores[~alike], 1 - _ACCEPTED)
        accepted = (scores[alike] > limit).mean()
        print(f"{name}: AUROC {right:.3f}; {accepted:.3f} accepted, constant {-limit:.2f}")


def _pairs(draw: random.Random) -> tuple[list[tuple[str, str]], list[bool]]:
    """Pairs of questions of the relations with odd numbers, and whether they are one question."""
    library = relations()[1::2]
    pairs, same = [], []
    for number in range(_PAIRS):
        relation = draw.choice(library)
        name = invented_name(draw, relation.kind)
        others = [one for one in library if one.kind == relation.kind and one is not relation]
        other = relation if number % 2 == 0 else draw.choice(others)
        taught = draw.choice(relation.wordings)
        asked = draw.choice([wording for wording in other.wordings if wording != taught])
        pairs.append((taught.replace(ENTITY, name), asked.replace(ENTITY, name)))
        same.append(other is relation)
    return pairs, same


def _vectors(engine: Engine, texts: list[str], draw: random.Random) -> torch.Tensor:
    """Questions in a projection that was fitted to the relations with even numbers."""
    reader, depths = engine.reader, engine.tuning.depths
    seen = [
        (number, wording.replace(ENTITY, invented_name(draw, relation.kind)))
        for number, relation in enumerate(relations())
        if number % 2 == 0
        for wording in draw.sample(relation.wordings, 4)
    ]
    states = reader.states([reader.form.question(text) for _, text in seen], depths)
    projection = _project(states, torch.tensor([number for number, _ in seen]), depths)
    return projection.vectors(reader.states([reader.form.question(t) for t in texts], depths))


if __name__ == "__main__":
    main()
