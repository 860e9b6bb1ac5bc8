"""A part of a chat memory that leads elsewhere is refused by every verb that writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.consolidation.consolidate import consolidate
from holdfast.memory.detached import opened_log
from holdfast.memory.memory import Memory
from holdfast.memory.record import PROGRESS_OF_ALL
from tests.memory.memories import MONDAY, WEDNESDAY, Copied
from tests.trajectory.outcome import contents_of

PARTS = ["lessons", "lessons.log", "facts.jsonl", "memory.json", PROGRESS_OF_ALL, ".facts.lock"]
WRITE: dict[str, Callable[[Memory], object]] = {
    "learn": lambda memory: memory.learn(WEDNESDAY),
    "put on file": lambda memory: memory.write_facts(WEDNESDAY),
    "consolidate": consolidate,
}


@pytest.mark.parametrize(
    ("verb", "part"),
    [
        *(("learn", part) for part in PARTS),
        ("put on file", "lessons"),
        *(("consolidate", part) for part in ("lessons", PROGRESS_OF_ALL)),
    ],
)
def test_nothing_is_written_or_removed_behind_a_link(
    verb: str, part: str, copied: Copied, tmp_path: Path
) -> None:
    place, elsewhere = copied(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    if (place / part).exists():
        shutil.move(place / part, elsewhere / part)
    else:
        (elsewhere / part).write_text("years of work")
    for folder in {elsewhere, elsewhere / part} - {elsewhere / part if part != "lessons" else None}:
        for name in (".hidden", ".x.json.12.part", "thesis.safetensors"):
            (folder / name).write_text("theirs")
    (place / part).symlink_to(elsewhere / part)
    before, ours = contents_of(elsewhere), contents_of(place)
    with pytest.raises(HoldfastError, match="is a link to") as error:
        WRITE[verb](Memory(place))
    assert str(place / part) in str(error.value) and "\n" not in str(error.value)
    assert (contents_of(elsewhere), contents_of(place)) == (before, ours)
    assert Memory(place).reply(MONDAY[0][0]).text == MONDAY[0][1]  # it is read as before


def test_what_lessons_say_is_not_appended_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("years of work")
    (tmp_path / "lessons.log").symlink_to(tmp_path / "theirs")
    with pytest.raises(HoldfastError, match="is a link"):
        opened_log(tmp_path)


@pytest.mark.parametrize("name", ["facts.jsonl", "a lesson", "progress.json", "memory.json"])
def test_a_pipe_in_place_of_a_file_does_not_hang(
    name: str, place: Path, chat_directory: Path
) -> None:
    from holdfast.memory.states import lesson_states

    path = next((place / "lessons").iterdir()) if name == "a lesson" else place / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    if name == "progress.json":
        Memory(place).write_facts(WEDNESDAY)
        assert lesson_states(place)[-1].state == "waiting"
        return
    with pytest.raises(HoldfastError, match=r"regular file|damaged|is no memory"):
        Memory(place, str(chat_directory)).reply(MONDAY[0][0])
