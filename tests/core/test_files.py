"""A file that is replaced is on disk before it has its name, and its name when all is done."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.files import append, cut, lock_directory, make_folder, write_text_atomically


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the disk is asked for, in order."""
    asked: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushing(handle: int) -> None:
        found = os.fstat(handle)
        asked.append("directory" if stat.S_ISDIR(found.st_mode) else f"{found.st_size} bytes")
        fsync(handle)

    def renaming(source: Any, target: Any) -> None:
        asked.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(os, "replace", renaming)
    return asked


def test_contents_are_flushed_before_the_name_and_then_the_name(
    tmp_path: Path, heard: list[str]
) -> None:
    write_text_atomically(tmp_path / "commit.json", "whole")
    assert heard == ["5 bytes", "rename", "directory"]


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


def test_what_is_appended_is_flushed_before_its_size_is_told(
    tmp_path: Path, heard: list[str]
) -> None:
    assert append(tmp_path / "log.jsonl", "one\n") == 4
    assert append(tmp_path / "log.jsonl", "more\n") == 9
    assert heard == ["4 bytes", "9 bytes"]


def test_a_directory_that_was_moved_is_not_made_again(tmp_path: Path) -> None:
    """Only where a writer says so, for a place that its user names."""
    work = tmp_path / "moved" / "run"
    refused = pytest.raises(HoldfastError, match="run: was moved or removed meanwhile")
    with refused:
        write_text_atomically(work / "report.html", "page")
    with refused:
        make_folder(work / "state")
    with refused, lock_directory(work, create=False):
        pass
    assert not work.parent.exists()
    write_text_atomically(work / "report.html", "page", parents=True)
    assert (work / "report.html").read_text() == "page"
