"""Which cells may begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.studies.job import Job, due

CELL: Any = None  # which of them may begin is a matter of directories


def job(name: str) -> Job:
    return Job(CELL, Path(name))


def test_a_trajectory_is_handed_to_one_worker_at_a_time() -> None:
    first, second, again, last = job("a"), job("b"), job("a"), job("c")
    assert due([first, second, again, last], []) == [first, second, last]
    assert due([again, last], [first]) == [last]
    assert due([again], [first, second]) == []
    assert due([again], [second]) == [again]
