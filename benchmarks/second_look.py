"""How well the gate's looks tell questions apart: `python -m benchmarks.second_look smollm2`.

Pairs of questions of the library of relations, about invented names: two wordings of one relation,
and wordings of two relations about one name. The first look's projection has seen these relations,
so it looks better here than on others. Prints each look's AUROC, and the constant at which a tenth
of the pairs of two relations would be accepted.
"""

from __future__ import annotations

import random
import sys

import numpy as np

from holdfast.memory.chat.engine import Engine
from holdfast.memory.chat.library_questions import library_questions, pairs_of
from holdfast.memory.chat.second_look import BY_INFORMATION, Pair, mutual_information
from holdfast.memory.chat.words import agreement
from holdfast.model.fetch import fetch

_PAIRS = 450
_ACCEPTED = 0.1


def main() -> None:
    engine = Engine(fetch(sys.argv[1]))
    draw = random.Random(1)
    asked = library_questions(draw)
    chosen = [pair for pair in pairs_of(asked, _PAIRS, draw) if pair[2] != "entity"]
    rows = sorted({row for pair in chosen for row in pair[:2]})
    looks = dict(zip(rows, engine.looks([asked[row].text for row in rows]), strict=True))
    first, pairs = [], []
    for one, other, _ in chosen:
        taught, second = looks[one], looks[other]
        covered, extra = agreement(taught.names, second.names)
        first.append(engine.tuning.score(float(taught.vector @ second.vector), covered, extra))
        pairs.append(Pair(asked[one].text, asked[other].text, taught.names))
    information = mutual_information(engine.reader, pairs)
    alike = np.array([what == "same" for *_, what in chosen])
    scores = {
        "first": np.array(first),
        "information": np.array(information),
        "both": np.array(first) + BY_INFORMATION * np.array(information),
    }
    for name, values in scores.items():
        right = (values[alike][:, None] > values[~alike][None]).mean()
        limit = np.quantile(values[~alike], 1 - _ACCEPTED)
        accepted = (values[alike] > limit).mean()
        print(f"{name}: AUROC {right:.3f}; {accepted:.3f} accepted, constant {-limit:.2f}")


if __name__ == "__main__":
    main()
