"""Files are whole or not there; readers open regular files alone, writers nothing behind a link."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from holdfast.core.config import read_yaml
from holdfast.core.errors import HoldfastError, NoSpaceError
from holdfast.core.file_checks import own_file, regular, remove_named, remove_unfinished
from holdfast.core.files import (
    append,
    atomic_directory,
    atomic_write,
    cut,
    lock_directory,
    make_folder,
    read_json,
    write_text_atomically,
)
from holdfast.results.record import read_events
from holdfast.streams.batches import read_batches
from tests.refused import line_of


def test_contents_are_flushed_before_their_name_and_size_are_told(tmp_path, monkeypatch):
    asked: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushing(handle: int) -> None:
        status = os.fstat(handle)
        asked.append("directory" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes")
        fsync(handle)

    def renaming(source: Any, target: Any) -> None:
        asked.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(os, "replace", renaming)
    write_text_atomically(tmp_path / "commit.json", "whole")
    assert asked == ["5 bytes", "rename", "directory"]
    assert append(tmp_path / "log.jsonl", "one\n") == 4
    assert append(tmp_path / "log.jsonl", "more\n") == 9
    assert asked[3:] == ["4 bytes", "9 bytes"]


def test_what_has_another_name_is_not_changed_there(tmp_path: Path) -> None:
    log, copy = tmp_path / "log.jsonl", tmp_path / "copy.jsonl"
    append(log, "one\n")
    os.link(log, copy)
    assert append(log, "two\n") == 8
    assert (log.read_text(), copy.read_text()) == ("one\ntwo\n", "one\n")
    copy.unlink()
    os.link(log, copy)
    cut(log, 4)
    assert (log.read_text(), copy.read_text()) == ("one\n", "one\ntwo\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.jsonl", "log.jsonl"]


def test_a_directory_that_was_moved_is_not_made_again(tmp_path: Path) -> None:
    """Only where a writer says so, for a place that its user names."""
    work = tmp_path / "moved" / "run"
    for call in (
        lambda: write_text_atomically(work / "report.html", "page"),
        lambda: make_folder(work / "state"),
        lock_directory(work, create=False).__enter__,
    ):
        assert "run: was moved or removed meanwhile" in line_of(call)
    assert not work.parent.exists()
    write_text_atomically(work / "report.html", "page", parents=True)
    assert (work / "report.html").read_text() == "page"


def test_a_directory_that_is_moved_while_it_is_being_locked_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock's library makes a directory where there is none."""
    acquire = FileLock.acquire

    def late(lock: FileLock) -> object:
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        return acquire(lock)

    monkeypatch.setattr(FileLock, "acquire", late)
    assert "run: was moved or removed meanwhile" in line_of(
        lock_directory(tmp_path / "run").__enter__
    )
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of somebody else."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "weights.safetensors").write_text("theirs")
    (folder / ".hidden").write_text("theirs")
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_readers_open_regular_files_alone(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    for reader in (read_json, read_yaml, read_batches):
        assert "log.jsonl: cannot be read (it is no regular file" in line_of(reader, path)
    assert "no regular file" in line_of(lambda: list(read_events(tmp_path)))


def test_a_link_to_a_file_is_read_and_nothing_is_appended_behind_it(foreign, tmp_path):
    before = texts(foreign)
    (tmp_path / "log").symlink_to(foreign / ".hidden")
    assert regular(tmp_path / "log").read_text() == "theirs"
    assert "is a link" in line_of(append, tmp_path / "log", "ours\n")
    assert texts(foreign) == before
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in line_of(append, tmp_path / "pipe", "ours\n")
    assert own_file(tmp_path / "new") == tmp_path / "new"


@pytest.mark.parametrize("part", [".lock", "state"])
def test_a_directory_whose_part_is_a_link_is_refused(part: str, foreign: Path, tmp_path: Path):
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / part).symlink_to(foreign)
    before = texts(foreign)
    refused = line_of(lock_directory(ours, parts=("state",)).__enter__)
    assert refused.startswith(f"{ours / part}: is a link to {foreign}")
    assert texts(foreign) == before
    assert os.listdir(ours) == [part]
    (tmp_path / "link").symlink_to(foreign)
    with lock_directory(tmp_path / "link", parts=("state",)):  # itself it may be a link
        assert (foreign / ".lock").exists()


def test_only_what_is_named_is_removed(foreign: Path, tmp_path: Path) -> None:
    """A name that leads out, by its text or by a link, removes nothing."""
    ours = tmp_path / "ours"
    (ours / "state").mkdir(parents=True)
    (ours / "linked").symlink_to(foreign)
    for name in ("one.safetensors", "two.safetensors", ".hidden"):
        (ours / "state" / name).touch()
    out = os.path.relpath(foreign, ours)
    names = ["state/one.safetensors", "state/none", "linked/weights.safetensors", "linked/.hidden"]
    names += [f"{out}/.hidden", str(foreign / ".hidden"), f"state/../{out}/.hidden", "state"]
    before = texts(foreign)
    remove_named(ours, names)
    assert texts(foreign) == before
    assert sorted(os.listdir(ours / "state")) == [".hidden", "two.safetensors"]


def test_what_killed_writers_left_is_known_by_its_name(foreign: Path, tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    (ours / ".a.safetensors.12.part").mkdir(parents=True)
    (ours / ".a.safetensors.12.part" / ".tmpAbCdEf").touch()
    for name in (".b.json.7.part", ".tmpAbCdEf", ".thesis.part", ".hidden"):
        (ours / name).touch()
    (ours / ".c.json.8.part").symlink_to(foreign)
    before = texts(foreign)
    remove_unfinished(ours)
    assert sorted(os.listdir(ours)) == [".hidden", ".thesis.part", ".tmpAbCdEf"]
    (foreign / ".b.json.7.part").touch()
    (tmp_path / "linked").symlink_to(foreign)
    remove_unfinished(tmp_path / "linked")
    assert texts(foreign) == {**before, ".b.json.7.part": ""}


def test_a_writer_in_a_folder_leaves_only_its_file(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        (path.parent / ".tmpAbCdEf").touch()  # as safetensors does
        path.write_text("whole")

    with atomic_write(tmp_path / "a", in_folder=True) as temporary:
        write(temporary)
    assert texts(tmp_path) == {"a": "whole"}
    with (
        contextlib.suppress(HoldfastError),
        atomic_write(tmp_path / "a", in_folder=True) as temporary,
    ):
        write(temporary)
        raise PermissionError
    assert texts(tmp_path) == {"a": "whole"}


def test_a_new_folder_is_not_made_behind_a_link(foreign: Path, tmp_path: Path) -> None:
    """The hidden folder beside it holds what is being written, and is removed."""
    (foreign / "new").mkdir()
    (foreign / "new" / "thesis.txt").touch()
    (tmp_path / ".out.part").symlink_to(foreign)
    assert "is a link" in line_of(atomic_directory(tmp_path / "out").__enter__)
    assert (foreign / "new" / "thesis.txt").exists()
    (tmp_path / ".out.part").unlink()
    (tmp_path / ".out.part").mkdir()
    (tmp_path / ".out.part" / "mine").touch()
    with atomic_directory(tmp_path / "out") as folder:
        (folder / "file").touch()
    assert os.listdir(tmp_path / "out") == ["file"]
    assert os.listdir(tmp_path / ".out.part") == ["mine"]


def test_a_full_disk_has_an_error_of_its_own(tmp_path: Path, monkeypatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (append, write_text_atomically):
        with pytest.raises(NoSpaceError, match="No space left"):
            write(tmp_path / "log", "more")
    with pytest.raises(NoSpaceError), atomic_write(tmp_path / "a"):
        raise OSError("Error while serializing: No space left on device (os error 28)")
