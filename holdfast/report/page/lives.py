"""The lives of items on the page: packed run by run, and unpacked by the reader's browser."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.analysis.items import Items, has_items, read_items
from holdfast.core.errors import HoldfastError
from holdfast.results import RecallMatrix
from holdfast.results.items import FOLDER

MOST = 100_000  # items of a data set, over all its runs


@dataclass
class Lives:
    """What the page's script needs of the items.

    runs: ``method``, ``seed``, ``facts`` (place in ``facts``) and ``packed``: of each embedded
    item a life, with a 1, a 0 or a - (not asked) for every row from ``rows`` since its task was
    learned, and what asked it: task, number of samples, and so on in pairs. facts: packed, the
    task, number, question and answer of each item; runs of one stream share one.
    every: one item in so many of each task is embedded; counted, embedded: of all runs.
    refused: of runs that cannot be read, why.
    """

    every: int = 1
    counted: int = 0
    embedded: int = 0
    runs: list[dict[str, Any]] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def lives_of(cells: Iterable[Any], matrices: Mapping[str, RecallMatrix], most: int = MOST) -> Lives:
    """The items of the runs of one data set that kept verdicts by item or samples.

    cells, matrices: of a study; most: embed about so many items of all runs, the same items of
    each task in every run.
    """
    kept = [cell for cell in cells if cell["horizon"] and has_items(cell["path"])]
    counted = sum(_count(matrices[cell["path"]]) for cell in kept if _has_verdicts(cell))
    found = Lives(max(1, -(-counted // most)), counted)
    for cell in kept:
        try:
            items = read_items(cell["path"], cell["horizon"])
        except HoldfastError as error:
            found.refused.append(str(error))
            continue
        _embed(found, cell, items)
    return found


def _has_verdicts(cell: Any) -> bool:
    return (Path(cell["path"]) / FOLDER).is_dir()


def _count(matrix: RecallMatrix) -> int:
    """The items of all learned tasks."""
    last = matrix.horizon
    entries = (matrix.entry(last, task) for task in range(1, last + 1))
    return sum(entry.items for entry in entries if entry is not None)


def _chosen(items: Items, every: int) -> list[tuple[int, int]]:
    """The task and the place of one item in ``every`` of each task."""
    return [
        (number, place)
        for number, task in enumerate(items.stream.tasks[: items.horizon], start=1)
        for place in range(0, len(task.items), every)
    ]


def _embed(found: Lives, cell: Any, items: Items) -> None:
    chosen = _chosen(items, found.every) if items.rows else []
    facts = _packed(_facts(items, chosen))
    if facts not in found.facts:
        found.facts.append(facts)
    found.embedded += len(chosen)
    found.runs.append(
        {
            "method": cell["method"],
            "seed": int(cell["seed"]),
            "facts": found.facts.index(facts),
            "packed": _packed(_life(items, chosen)) if chosen else None,
            "sampled": bool(items.samples),
        }
    )


def _facts(items: Items, chosen: Sequence[tuple[int, int]]) -> dict[str, Any]:
    told = [items.stream.tasks[number - 1].items[place] for number, place in chosen]
    return {
        "task": [number for number, _ in chosen],
        "number": [place + 1 for _, place in chosen],
        "question": [item.question for item in told],
        "answer": [item.answer for item in told],
    }


def _life(items: Items, chosen: Sequence[tuple[int, int]]) -> dict[str, Any]:
    rows = sorted(items.rows)
    asked = items.rehearsals() if items.samples else {}
    return {
        "tasks": items.horizon,
        "rows": rows,
        "life": [
            "".join(
                "-" if verdicts is None else "01"[verdicts[place]]
                for row in rows
                if row >= number
                for verdicts in [items.rows[row].get(number)]
            )
            for number, place in chosen
        ],
        "asked": [
            [int(one) for task in counts.nonzero()[0] for one in (task, counts[task])]
            for number, place in chosen
            for counts in [asked[number][place]]
        ]
        if asked
        else None,
    }


def _packed(value: Any) -> str:
    """A JSON value, deflated, as base64."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")
