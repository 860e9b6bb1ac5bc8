"""Whether a memory tells what it was taught from what it was not, and how sure it is.

    python -m benchmarks.remembering --seeds 42 --out build/memories
    python -m benchmarks.knowing build/memories/memory-42

Asks three kinds of questions: all that were taught, three hundred that were not, and one other
wording of each that was taught. Nothing is learned or written.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from benchmarks.remembering import ROOMS, THINGS
from holdfast.builders.paraphrases import reworded
from holdfast.memory.answering import Reply
from holdfast.memory.memory import Memory

_NEW_THINGS = (
    "hammer", "kettle", "violin", "umbrella", "lantern", "carpet", "saddle", "brush", "candle box",
    "coat hook",
)  # fmt: skip
_NEW_ROOMS = (
    "castle", "garage", "theatre", "bank", "harbour office", "hospital", "farm", "tower",
    "windmill", "kitchen",
)  # fmt: skip
_OTHER_FORMS = (
    "What is the capital of {}?", "Who is the mayor of {}?", "How many people live in {}?",
    "When was {} founded?", "Which river runs through {}?",
)  # fmt: skip
_TOWNS = (
    "France", "Lisbon", "Venn", "Aldermoor", "Kyoto", "Norway", "Ostra", "Lima", "Peru", "Cork",
    "Tarn", "Ghent", "Bergen", "Quito", "Mali", "Riga", "Delft", "Nairobi", "Malta", "York",
)  # fmt: skip
_BINS = 10


def untaught(taught: Sequence[str]) -> dict[str, list[str]]:
    """A hundred questions of each kind that were not taught, by kind."""
    same = [f"Where is the {thing} of the {place}?" for thing in THINGS for place in ROOMS]
    return {
        "same words, another pair": [one for one in same if one not in set(taught)][:100],
        "same form, other words": [
            f"Where is the {thing} of the {place}?" for thing in _NEW_THINGS for place in _NEW_ROOMS
        ],
        "another form": [form.format(town) for form in _OTHER_FORMS for town in _TOWNS],
    }


def auroc(taught: Sequence[float], others: Sequence[float]) -> float:
    """How often a taught question has the higher density of the two; ties count half."""
    ranks = rankdata([*taught, *others])
    wins = ranks[: len(taught)].sum() - len(taught) * (len(taught) + 1) / 2
    return float(wins / (len(taught) * len(others)))


def calibration_error(sure: Sequence[float], right: Sequence[bool]) -> float:
    """The expected calibration error over ten equal bins of probability."""
    sure, right = np.asarray(sure), np.asarray(right, dtype=float)
    bins = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    gaps = [abs(right[bins == one].sum() - sure[bins == one].sum()) for one in set(bins.tolist())]
    return float(sum(gaps) / len(sure))


def measure(directory: Path) -> dict[str, object]:
    """Ask a memory all questions; what it says of them."""
    memory = Memory(directory)
    facts = list(memory.facts)
    on_file = {item.question for task in memory.trajectory.stream.tasks for item in task.items}
    other = [next(w for w in reworded(f.question) if w not in on_file) for f in facts]
    taught, worded = (
        memory.replies([fact.question for fact in facts]), memory.replies(other)
    )  # fmt: skip
    kinds = {kind: memory.replies(asked) for kind, asked in untaught(list(on_file)).items()}
    none = [reply for replies in kinds.values() for reply in replies]
    density = _densities(taught)
    right = [reply.answer == fact.answer for reply, fact in zip(taught, facts, strict=True)]
    right_worded = [reply.answer == fact.answer for reply, fact in zip(worded, facts, strict=True)]
    known = memory.knowledge()
    assert known is not None, "a memory that does not rehearse tells nothing apart"
    everything = [*taught, *worded, *none]
    verdicts = [*right, *right_worded, *[False] * len(none)]
    said = [(reply, ok) for reply, ok in zip(everything, verdicts, strict=True) if reply.taught]
    return {
        "facts": len(facts),
        "recalled": sum(right),
        "threshold": round(known.threshold, 2),
        "AUROC, taught against all untaught": round(auroc(density, _densities(none)), 3),
        "AUROC by kind": {k: round(auroc(density, _densities(r)), 3) for k, r in kinds.items()},
        "said to be taught": {
            "taught and recalled": _share([r for r, ok in zip(taught, right, strict=True) if ok]),
            "taught and forgotten": _share(
                [r for r, ok in zip(taught, right, strict=True) if not ok]
            ),
            **{kind: _share(replies) for kind, replies in kinds.items()},
            "in other words": _share(worded),
        },
        "other words answered right": f"{sum(right_worded)} of {len(worded)}",
        "calibration error": round(
            calibration_error([r.probability for r in everything], verdicts), 3
        ),
        "calibration error of what is said to be taught": round(
            calibration_error([r.probability for r, _ in said], [ok for _, ok in said]), 3
        ),
        "right among what is said to be taught": f"{sum(ok for _, ok in said)} of {len(said)}",
    }


def _densities(replies: Sequence[Reply]) -> list[float]:
    return [reply.log_density for reply in replies if reply.log_density is not None]


def _share(replies: Sequence[Reply]) -> str:
    return f"{sum(bool(reply.taught) for reply in replies)} of {len(replies)}"


def main() -> None:
    """Print one JSON object a memory."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.knowing", description=__doc__)
    parser.add_argument("memories", nargs="+", type=Path)
    for directory in parser.parse_args().memories:
        print(json.dumps({"memory": directory.name, **measure(directory)}, indent=1))


if __name__ == "__main__":
    main()
