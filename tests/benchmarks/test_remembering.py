"""The facts that a memory is measured with, and the measurement at its smallest."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.remembering import invented, teach
from holdfast.learning.config import RunConfig
from holdfast.recipes import recipe


@pytest.mark.parametrize("seed", [1, 7])
def test_invented_facts_and_their_corrections(seed: int) -> None:
    lessons = invented(facts=300, batches=40, corrections=20, seed=seed)
    assert len(lessons.batches) == 40
    assert sum(map(len, lessons.batches)) == 320
    sizes = {len(batch) for batch in lessons.batches}
    assert min(sizes) <= 2 and max(sizes) >= 15
    known: dict[str, str] = {}
    for batch, corrected in zip(lessons.batches, lessons.corrected, strict=True):
        again = {item.question for item in batch if item.question in known}
        assert again == corrected
        for item in batch:
            assert known.get(item.question) != item.answer
            known[item.question] = item.answer
    assert len(known) == 300
    assert sum(map(len, lessons.corrected)) == 20
    assert invented(300, 40, 20, seed) == lessons


def test_sizes_may_be_given() -> None:
    lessons = invented(300, 40, 2, 1, sizes=[10, 3, 1, 30])
    new = [
        len(batch) - len(corrected)
        for batch, corrected in zip(lessons.batches, lessons.corrected, strict=True)
    ]
    assert new == [10, 3, 1, 30]
    assert sum(map(len, lessons.corrected[2:])) == 2


def test_what_is_told_of_a_memory(tmp_path: Path) -> None:
    """Hardly trained, it knows nothing; taught again, nothing is left to learn."""
    hardly = ["optim.epochs=1", "optim.min_steps=0", "optim.acquired=null"]
    config = RunConfig.of(recipe("memory"), ["method=vanilla", *hardly])
    lessons = invented(facts=6, batches=3, corrections=1, seed=1)
    told = teach(tmp_path / "memory", config, lessons)
    assert told["facts"] == 6
    assert told["recalled"] == 0
    assert told["missed when learned"] == 7
    assert told["corrections missed when learned"] == 1
    assert told["corrections recalled"] == 0
    again = teach(tmp_path / "memory", config, lessons)
    assert again["seconds of the first batch"] is None
    assert again["recalled"] == 0
    assert "recalled after each learn --again" not in again
    twice = teach(tmp_path / "memory", config, lessons, again=2)
    assert twice["recalled after each learn --again"] == [0, 0]
    assert (again["facts"], twice["facts"]) == (6, 6)
