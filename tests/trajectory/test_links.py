"""A part of a run's directory that leads elsewhere is refused, and what is there stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from holdfast import HoldfastError, Trajectory
from tests.trajectory.outcome import commit_of, contents_of, numbers_of

METHOD = "si_replay_merge"

pytestmark = pytest.mark.usefixtures("quick")


def with_link(place: Path, part: str, elsewhere: Path) -> dict[str, bytes]:
    """Move a part elsewhere, beside files of somebody else, and link to it; what is there."""
    path = place / part
    elsewhere.mkdir()
    if path.is_dir():
        shutil.copytree(path, elsewhere, dirs_exist_ok=True)
        shutil.rmtree(path)
    else:
        shutil.copy(path, elsewhere / "data.csv")
        with (elsewhere / "data.csv").open("ab") as file:
            file.write(b"years of work, no line of a log")
        path.unlink()
    for name in ("thesis.safetensors", ".hidden", ".config", ".x.12.part"):
        (elsewhere / name).write_text("theirs")
    path.symlink_to(elsewhere if (elsewhere / "commit.json").exists() or part == "factors"
                    else elsewhere / "data.csv")  # fmt: skip
    return contents_of(elsewhere)


@pytest.mark.parametrize("part", ["state", "factors", "log.jsonl"])
def test_a_run_goes_on_in_its_own_directory_alone(part, config, undisturbed, tmp_path) -> None:
    place = shutil.copytree(undisturbed(METHOD, 2), tmp_path / "run")
    theirs = with_link(place, part, tmp_path / "elsewhere")
    ours = {name: path for name, path in contents_of(place).items() if "log" not in name}
    with pytest.raises(HoldfastError, match="is a link to") as error:
        Trajectory(config(METHOD), place).advance(3)
    assert str(place / part) in str(error.value) and "\n" not in str(error.value)
    assert contents_of(tmp_path / "elsewhere") == theirs
    assert {name: path for name, path in contents_of(place).items() if "log" not in name} == ours
    assert Trajectory(config(METHOD), place).horizon == 2  # it is read as before


def test_a_directory_that_is_a_link_is_used(config, undisturbed, tmp_path) -> None:
    shutil.copytree(undisturbed(METHOD, 2), tmp_path / "far")
    (tmp_path / "run").symlink_to("far")
    Trajectory(config(METHOD), tmp_path / "run").advance(3)
    assert (tmp_path / "run").is_symlink()
    assert numbers_of(tmp_path / "far") == numbers_of(undisturbed(METHOD, 3))


def test_only_files_that_a_commit_names_are_removed(config, undisturbed, tmp_path) -> None:
    """What somebody puts beside them stays; what is superseded goes, also after a kill."""
    place = shutil.copytree(undisturbed(METHOD, 2), tmp_path / "run")
    mine = ["state/backup-0001.safetensors", "factors/.hidden", ".notes", "state/.x.part"]
    for name in mine:
        (place / name).write_text("mine")
    before = commit_of(place)["files"]
    Trajectory(config(METHOD), place).advance(3)
    assert [(place / name).read_text() for name in mine] == ["mine"] * 4
    after = commit_of(place)
    gone = sorted(before.keys() - after["files"].keys())
    assert gone and after["superseded"] == gone
    assert not any((place / name).exists() for name in gone)
    (place / gone[0]).touch()  # as if the process had been killed before it was removed
    Trajectory(config(METHOD), place).advance(4)
    assert not (place / gone[0]).exists()


@pytest.mark.parametrize("name", ["config.json", "state/commit.json"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(name, config, undisturbed, tmp_path) -> None:
    place = shutil.copytree(undisturbed(METHOD, 2), tmp_path / "run")
    (place / name).unlink()
    os.mkfifo(place / name)
    with pytest.raises(HoldfastError, match=r"no regular file|is missing"):
        Trajectory(config(METHOD), place).advance(3)
