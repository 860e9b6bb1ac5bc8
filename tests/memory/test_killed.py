"""Killed anywhere, the last lesson stands, and the same call ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.engine import Engine
from holdfast.memory.memory import Memory
from holdfast.memory.record import PROGRESS_FILE, is_memory
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY, Copied
from tests.memory.teaching import start
from tests.trajectory.children import finish
from tests.trajectory.instants import heard
from tests.trajectory.outcome import contents_of

LESSONS = (MONDAY, TUESDAY)


def files_of(place: Path) -> dict[str, bytes]:
    """All files but the locks, and what tells how far a lesson is."""
    files = {str(path.relative_to(place)): path for path in place.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in files.items()
        if not name.endswith(".lock") and PROGRESS_FILE not in name
    }


pytestmark = pytest.mark.usefixtures("unflushed")


@contextlib.contextmanager
def copied_at_instants(place: Path, folder: Path) -> Iterator[list[Path]]:
    """Copies of a memory at every instant of the block's writing, of equal ones the first."""
    copies: list[Path] = []
    seen: set[object] = {()}

    def hear(_: str) -> None:
        files = tuple(files_of(place).items())
        if files not in seen:
            seen.add(files)
            copies.append(shutil.copytree(place, folder / str(len(copies)) / "m"))

    with heard(hear):
        yield copies


def quick_engine(memory: Memory) -> Engine:
    """Lessons of two steps: what they miss is on file too, and the same bytes are due."""
    engine = memory.engine()
    engine.settings = replace(engine.settings, steps=2, visits=2)
    return engine


@dataclass(frozen=True)
class Instants:
    """copies: of a memory at every instant of its two lessons, each with the lesson's number;
    end: its files after them.
    """

    copies: list[tuple[Path, int]]
    end: dict[str, bytes]


@pytest.fixture(scope="module")
def instants(
    chat_directory: Path,
    chat_cache: Path,
    two_lessons: Path,  # with which the model's gate was fitted
    tmp_path_factory: pytest.TempPathFactory,
) -> Instants:
    root = tmp_path_factory.mktemp("instants")
    place, copies = root / "m", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(chat_cache))
        memory = Memory(place, str(chat_directory))
        quick_engine(memory)
        for lesson, facts in enumerate(LESSONS):
            with copied_at_instants(place, root / str(lesson)) as made:
                memory.learn(facts)
            copies += [(copy, lesson) for copy in made]
    return Instants(copies, files_of(place))


@pytest.mark.parametrize("again", ["the same", "none"])
def test_killed_at_every_instant(again: str, instants: Instants, chat_directory: Path) -> None:
    """The same call continues; so does one without facts, once they are on file."""
    assert len(instants.copies) >= 10
    pending, engine = 0, None
    for copy, lesson in instants.copies[again == "none" :: 2]:
        memory = Memory(copy, str(chat_directory))
        memory._engine = engine = engine or quick_engine(memory)  # loaded once
        assert memory.horizon in (lesson, lesson + 1)
        pending += len(memory.facts) > (0, 3, 5)[memory.horizon]
        if again == "none" and memory.facts:
            memory.learn()
        for facts in LESSONS[memory.horizon if again == "none" else lesson :]:
            memory.learn(facts)
        assert files_of(copy) == instants.end, copy
    assert pending > 1


def test_stopped_within_a_lesson(copied: Copied, two_lessons: Path, chat_directory: Path) -> None:
    """What was learned is answered as before, what was stopped from the list; then it is learned
    as if it had not been stopped.
    """
    place = copied().parent / "new" / "m"
    memory = Memory(place, str(chat_directory))
    memory.learn(MONDAY)
    before = memory.replies([question for question, _ in [*MONDAY, *TUESDAY]])
    assert [reply.source for reply in before] == ["weights"] * 3 + ["model"] * 2

    def impatient(label: str, done: int, total: int) -> None:
        if label.startswith("lesson"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.learn(TUESDAY, report=impatient)
    after = memory.replies([question for question, _ in [*MONDAY, *TUESDAY]])
    assert after[:3] == before[:3] and all(reply.waiting for reply in after[3:])
    assert [reply.text for reply in after[3:]] == [answer for _, answer in TUESDAY]
    assert (memory.horizon, len(memory.facts)) == (1, 5)
    assert memory.learn(TUESDAY).lessons == ("2",)
    assert files_of(place) == files_of(two_lessons)


def test_a_killed_process_and_others_beside_it(
    two_lessons: Path, chat_directory: Path, chat_cache: Path, tmp_path: Path
) -> None:
    """One is killed at an instant, one in the middle of a lesson while others ask and teach."""
    place = tmp_path / "m"
    teach = partial(start, place, chat_directory, chat_cache)
    for instant in (4, 14):
        assert finish(teach(MONDAY, instant=instant))[0] == -signal.SIGKILL
    assert finish(teach(MONDAY)) == (0, "done")
    child = teach(TUESDAY, hold=True)
    assert child[1].recv() == "holding"
    before = contents_of(place)
    memory = Memory(place)
    assert memory.reply(MONDAY[0][0]).source == "weights"
    with pytest.raises(HoldfastError, match="another process is writing here"):
        memory.learn(WEDNESDAY)
    assert contents_of(place) == before
    child[0].kill()
    assert finish(child)[0] == -signal.SIGKILL
    assert memory.learn().lessons == ("2",)
    assert files_of(place) == files_of(two_lessons)


def test_a_full_disk_is_one_line_and_the_same_call_continues(
    two_lessons: Path, chat_directory: Path, chat_cache: Path, tmp_path: Path
) -> None:
    """At whatever file it shows; safetensors reports it as an error of its own."""
    place = tmp_path / "m"
    for file_bytes in (20, 100, 300, 20_000):
        child = start(place, chat_directory, chat_cache, MONDAY, file_bytes=file_bytes)
        code, words = finish(child)
        assert code == 0 and words is not None and "cannot be written" in words, words
        assert str(place) in words and "\n" not in words
        if is_memory(place):
            assert Memory(place).horizon == 0
            assert not any(name.endswith(".part") for name in files_of(place))
    memory = Memory(place, str(chat_directory))
    for facts in LESSONS:
        memory.learn(facts)
    assert files_of(place) == files_of(two_lessons)
