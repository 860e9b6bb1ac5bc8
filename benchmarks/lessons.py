"""Divide facts into lessons, with corrections of earlier facts in later lessons."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.seeding import derive

MOST = 20  # facts of a lesson of uneven size

Fact = dict[str, Any]
# (fact, seed, answers in use) -> the fact with an unused answer, which is added to those in use.
Correct = Callable[[Fact, int, set[str]], Fact]


def in_lessons(
    facts: Sequence[Fact],
    lessons: str,
    size: int | None,
    corrections: int,
    seed: int,
    correct: Correct,
) -> list[Fact]:
    """The facts and corrections in order, each with the name of its lesson as its task.

    lessons: ``one``; ``uneven``, each of 1 to 20 facts; or how many uneven ones. size: facts per
    lesson, instead of ``lessons``. corrections: how many facts later lessons correct, in addition.
    Raises ValueError if the facts do not fit the lessons, or too few can be corrected.
    """
    sizes = _sizes(len(facts), lessons, size, seed)
    rows: list[list[Fact]] = []
    begin = 0
    for count in sizes:
        rows.append(list(facts[begin : begin + count]))
        begin += count
    _correct(rows, corrections, seed, correct)
    width = len(str(len(rows)))
    return [
        {"task": f"lesson {number:0{width}d}", **fact}
        for number, row in enumerate(rows, start=1)
        for fact in row
    ]


def _sizes(facts: int, lessons: str, size: int | None, seed: int) -> list[int]:
    draw = random.Random(derive(seed, "lessons"))
    if size is not None:
        return [min(size, facts - begin) for begin in range(0, facts, size)]
    if lessons == "one":
        return [facts]
    if lessons == "uneven":
        sizes: list[int] = []
        while (missing := facts - sum(sizes)) > 0:
            sizes.append(min(draw.randint(1, MOST), missing))
        return sizes
    count = int(lessons)
    if not count <= facts <= MOST * count:
        raise ValueError(f"{facts} facts do not fit {count} lessons of 1 to {MOST}")
    sizes = [draw.randint(1, MOST) for _ in range(count)]
    while (missing := facts - sum(sizes)) != 0:
        step = 1 if missing > 0 else -1
        sizes[draw.choice([n for n, size in enumerate(sizes) if 1 <= size + step <= MOST])] += step
    return sizes


def _correct(rows: list[list[Fact]], corrections: int, seed: int, correct: Correct) -> None:
    """Insert corrections of facts into later lessons, at random places."""
    draw = random.Random(derive(seed, "corrections"))
    in_use: dict[tuple[str, str], set[str]] = defaultdict(set)
    for fact in (fact for row in rows for fact in row):
        in_use[_relation(fact)].add(fact["answer"])
    places = [(number, fact) for number, row in enumerate(rows[:-1]) for fact in row]
    draw.shuffle(places)
    count = 0
    for number, fact in places:
        if count == corrections:
            return
        try:
            changed = correct(fact, seed, in_use[_relation(fact)])
        except ValueError:  # every answer of this relation is in use
            continue
        row = rows[draw.randrange(number + 1, len(rows))]
        row.insert(draw.randint(0, len(row)), changed)
        count += 1
    if count < corrections:
        raise ValueError(f"only {count} facts can be corrected, not {corrections}")


def _relation(fact: Fact) -> tuple[str, str]:
    return fact["details"]["set"], fact["details"]["relation"]
