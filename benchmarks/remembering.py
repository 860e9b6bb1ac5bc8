"""A memory that is taught invented facts in uneven batches, corrections among them.

    python -m benchmarks.remembering --seeds 41 42 43 --out build/memories

Prints, for every seed, how much is recalled in the end, whether every correction was learned when
it came, and what a batch took. A memory that is there already goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.learning.config import RunConfig
from holdfast.memory.memory import Memory
from holdfast.recipes import recipe
from holdfast.streams import Item, Stream, Task

THINGS = (
    "spare key", "fuse box", "ladder", "first-aid kit", "tool chest", "big lamp", "logbook",
    "wine rack", "sewing machine", "paint", "broken clock", "tea tin", "seed box", "cash box",
    "rope", "telescope", "map", "guest bed", "radio", "bicycle",
)  # fmt: skip
ROOMS = (
    "workshop", "boathouse", "old school", "bakery", "vestry", "mill", "post office", "stable",
    "greenhouse", "library", "town hall", "ferry", "smithy", "inn", "lighthouse", "dairy",
    "printing house", "signal box", "chapel", "orchard hut",
)  # fmt: skip
_WHERE = ("behind", "under", "beside", "above", "inside", "in front of")
_KINDS = (
    "blue", "cracked", "tall", "painted", "copper", "wicker", "heavy", "round", "striped",
    "carved", "yellow", "folding", "narrow", "stone",
)  # fmt: skip
_PLACES = (
    "flowerpot", "stove", "mirror", "barrel", "staircase", "curtain", "cupboard", "bench", "piano",
    "basket", "window", "door", "chimney", "trunk", "sink", "desk",
)  # fmt: skip
_SIZES = (1, 2, 3, 3, 5, 8, 10, 15, 20, 8)  # of the new facts of ten batches


@dataclass(frozen=True)
class Lessons:
    """Batches of facts; corrected: the questions of each batch that have another answer now."""

    batches: list[list[Item]]
    corrected: list[set[str]]


def invented(
    facts: int, batches: int, corrections: int, seed: int, sizes: Sequence[int] = ()
) -> Lessons:
    """So many facts in batches of 1 to 20, and corrections among those of the later half.

    Every question stands once but for its corrections, and none is corrected twice. sizes: of the
    batches, instead of so many facts in so many batches.
    """
    draw = random.Random(seed)
    questions = [f"Where is the {thing} of the {room}?" for thing in THINGS for room in ROOMS]
    draw.shuffle(questions)
    known: dict[str, str] = {}
    taught: list[list[Item]] = []
    for size in sizes or _uneven(facts, batches, draw):
        batch = [Item(questions.pop(), _place(draw)) for _ in range(size)]
        known |= {item.question: item.answer for item in batch}
        taught.append(batch)
    batches = len(taught)
    corrected: list[set[str]] = [set() for _ in taught]
    later = [draw.randrange(batches // 2, batches) for _ in range(corrections)]
    open_to = [item.question for batch in taught[: batches // 2] for item in batch]
    for place, question in zip(later, draw.sample(open_to, corrections), strict=True):
        answer = _place(draw)
        while answer == known[question]:
            answer = _place(draw)
        taught[place].append(Item(question, answer))
        corrected[place].add(question)
    return Lessons(taught, corrected)


def _uneven(total: int, batches: int, draw: random.Random) -> list[int]:
    """So many sizes, changed by one here and there until they come to ``total``."""
    sizes = [_SIZES[place % len(_SIZES)] for place in range(batches)]
    draw.shuffle(sizes)
    while sum(sizes) != total:
        place = draw.randrange(len(sizes))
        sizes[place] = max(1, sizes[place] + (1 if sum(sizes) < total else -1))
    return sizes


def _place(draw: random.Random) -> str:
    return f"{draw.choice(_WHERE)} the {draw.choice(_KINDS)} {draw.choice(_PLACES)}"


def teach(
    directory: Path, config: RunConfig, lessons: Lessons, again: int = 0
) -> dict[str, object]:
    """Teach one batch after another; what came of it.

    again: how often, in the end, what was forgotten is taught once more.
    """
    memory = Memory(directory, config)
    seconds, missed_corrections, missed = [], 0, 0
    for number, batch in enumerate(lessons.batches, start=1):
        if number <= memory.horizon:
            continue
        start = time.perf_counter()
        learned = memory.learn(Stream((Task(f"{number}", tuple(batch)),), "invented"))
        seconds.append(time.perf_counter() - start)
        not_learned = {item.question for item in learned.missed}
        missed += len(not_learned)
        missed_corrections += len(not_learned & lessons.corrected[number - 1])
    forgotten = memory.forgotten()
    known = len(memory.facts)
    told = {
        "facts": known,
        "recalled": known - len(forgotten),
        "missed when learned": missed,
        "corrections missed when learned": missed_corrections,
        "corrections recalled": sum(map(len, lessons.corrected))
        - sum(item.question in set().union(*lessons.corrected) for item in forgotten),
        "seconds of the first batch": round(seconds[0], 1) if seconds else None,
        "seconds of a later one, median": _rounded(statistics.median, seconds[1:]),
        "longest": _rounded(max, seconds[1:]),
    }
    if again:
        rounds = [memory.learn(again=True).recalled for _ in range(again) if memory.forgotten()]
        told["recalled after each learn --again"] = rounds
    return told


def _rounded(of: object, seconds: Sequence[float]) -> float | None:
    assert callable(of)
    return round(of(seconds), 1) if seconds else None


def main() -> None:
    """One line of JSON a seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="memory")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seeds", nargs="+", type=int, default=[41])
    parser.add_argument("--facts", type=int, default=300)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--corrections", type=int, default=20)
    parser.add_argument("--sizes", nargs="+", type=int, default=[], help="of the batches, given")
    parser.add_argument("--facts-seed", type=int, default=7)
    parser.add_argument("--again", type=int, default=0, help="times to teach what was forgotten")
    parser.add_argument("--out", type=Path, help="where to keep the memories")
    chosen = parser.parse_args()
    lessons = invented(
        chosen.facts, chosen.batches, chosen.corrections, chosen.facts_seed, chosen.sizes
    )
    with tempfile.TemporaryDirectory() as folder:
        for seed in chosen.seeds:
            config = RunConfig.of(recipe(chosen.recipe), [*chosen.set, f"seed={seed}"])
            place = (chosen.out or Path(folder)) / f"memory-{seed}"
            told = teach(place, config, lessons, chosen.again)
            print(json.dumps({"seed": seed, **told}), flush=True)


if __name__ == "__main__":
    main()
