"""A study, a builder and a suite write and remove nothing behind a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.capability.run import stored_samples
from holdfast.core.errors import HoldfastError
from holdfast.results.capability import write_result
from holdfast.streams import Item, Stream, Task
from holdfast.streams.released import read_released, write_released
from holdfast.studies.directory import lock_study
from tests.trajectory.outcome import contents_of


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of somebody else."""
    folder = tmp_path / "foreign"
    (folder / "task_0").mkdir(parents=True)
    (folder / "task_0" / "thesis.txt").write_text("years of work")
    (folder / "lines").write_text("years of work")
    return folder


def test_a_study_whose_cells_lie_behind_a_link(foreign: Path, tmp_path: Path) -> None:
    place = tmp_path / "study"
    with lock_study(place, {}, place / "cells"):
        pass
    (place / "cells").symlink_to(foreign)
    before = contents_of(foreign)
    with (
        pytest.raises(HoldfastError, match="cells: is a link"),
        lock_study(place, {}, place / "cells"),
    ):
        raise AssertionError
    assert contents_of(foreign) == before


def test_samples_behind_a_link_are_not_cut(foreign: Path, tmp_path: Path) -> None:
    write_result(tmp_path, "gsm8k", {}, None)
    (tmp_path / "gsm8k.samples.jsonl").symlink_to(foreign / "lines")
    with pytest.raises(HoldfastError, match="is a link"):
        stored_samples(tmp_path / "gsm8k.samples.jsonl")
    assert (foreign / "lines").read_text() == "years of work"


def test_a_stream_is_not_written_behind_a_link(foreign: Path, tmp_path: Path) -> None:
    stream = Stream((Task("1", (Item("q", "a"),)),), "s")
    place = tmp_path / "out"
    place.mkdir()
    (place / ".unfinished").symlink_to(foreign)
    before = contents_of(foreign)
    with pytest.raises(HoldfastError, match="is a link"):
        write_released(stream, place)
    assert contents_of(foreign) == before
    (place / ".unfinished").unlink()
    (place / ".unfinished").mkdir()
    (place / "task_notes").mkdir()
    (place / "task_notes" / "mine").touch()
    (place / "task_0").mkdir()  # of a killed writer
    write_released(stream, place)
    assert (place / "task_notes" / "mine").exists()
    assert len(list(place.glob("task_?"))) == 1
    assert read_released(place).tasks[0].items[0].question == "q"
