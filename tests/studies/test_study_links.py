"""A study, a builder and a suite write and remove nothing behind a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.capability.run import stored_samples
from holdfast.results.capability import write_result
from holdfast.streams import Item, Stream, Task
from holdfast.streams.released import read_released, write_released
from holdfast.studies.directory import lock_study
from tests.refused import line_of
from tests.trajectory.outcome import contents_of


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of somebody else."""
    folder = tmp_path / "foreign"
    (folder / "task_0").mkdir(parents=True)
    (folder / "task_0" / "thesis.txt").write_text("years of work")
    return folder


def test_cells_and_samples_behind_a_link(foreign: Path, tmp_path: Path) -> None:
    before = contents_of(foreign)
    place = tmp_path / "study"
    with lock_study(place, {"study": "suite"}, place / "cells"):
        (place / "cells").symlink_to(foreign)
    assert "cells: is a link" in line_of(
        lock_study(place, {"study": "suite"}, place / "cells").__enter__
    )
    write_result(tmp_path, "gsm8k", {}, None)
    samples = tmp_path / "gsm8k.samples.jsonl"
    samples.symlink_to(foreign / "task_0" / "thesis.txt")
    assert "is a link" in line_of(stored_samples, samples)
    assert contents_of(foreign) == before


def test_a_stream_is_not_written_behind_a_link(foreign: Path, tmp_path: Path) -> None:
    stream = Stream((Task("1", (Item("q", "a"),)),), "s")
    place = tmp_path / "out"
    place.mkdir()
    (place / ".unfinished").symlink_to(foreign)
    before = contents_of(foreign)
    assert "is a link" in line_of(write_released, stream, place)
    assert contents_of(foreign) == before
    (place / ".unfinished").unlink()
    for folder in (".unfinished", "task_notes", "task_0"):  # the last of a killed writer
        (place / folder).mkdir()
    (place / "task_notes" / "mine").touch()
    write_released(stream, place)
    assert (place / "task_notes" / "mine").exists()
    assert len(list(place.glob("task_?"))) == 1
    assert read_released(place).tasks[0].items[0].question == "q"
