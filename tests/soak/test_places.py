"""Work that is killed, damaged, moved, behind links or on a full disk continues, or says why."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.soak.jobs import Job, call, jobs, one_line, results, work
from tests.trajectory.children import Child, begin, finish

TIMES = int(os.environ.get("HOLDFAST_SOAK", "1"))  # of each job
NAMES = ["si_online_ewc_kfac_sd_replay_merge", "llm-qa"]
if TIMES > 1:
    NAMES += ["si_replay_olora", "sd_osrm", "vanilla", "hf", "peft", "suite", "memory"]


@pytest.fixture(scope="module")
def whole(backbone_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A job by its name, the directory of its undisturbed work, and the seconds of that."""
    root, done = tmp_path_factory.mktemp("whole"), {}
    # The first child of all waits for imports, which a job's usual time must not count.
    assert finish(begin(work, ([], "", ""))) == (0, "done")

    def of(name: str) -> tuple[Job, Path, float]:
        if name not in done:
            (job,) = (job for job in jobs(root / "files", backbone_directory) if job.name == name)
            place, begun = root / name, time.perf_counter()
            assert worked(job, place) == "done"
            done[name] = job, place, time.perf_counter() - begun
        return done[name]

    return of


def worked(job: Job, place: Path, file_bytes: int | None = None) -> str:
    """All commands of a job in a process of its own: ``done``, or the line of the one refused."""
    return ended(begin(work, (job.at(place), job.once, str(place)), file_bytes=file_bytes))


def ended(child: Child) -> str:
    code, words = finish(child)
    assert code == 0 and words
    return words


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def commits(place: Path) -> int:
    """How many trajectories below a directory have committed a task."""
    return sum(1 for _ in place.rglob("commit.json"))


@pytest.mark.parametrize("name", NAMES if TIMES > 1 else [*NAMES, "si_replay_olora", "peft"])
def test_killed_at_random_times(name: str, whole: Any, tmp_path: Path) -> None:
    """Called again, every result is that of work that nobody disturbed."""
    job, done, usual = whole(name)
    expected = results(done)
    draw, deaths = random.Random(name), 0
    for number in range(TIMES):
        place, committed = tmp_path / str(number) / name, 0
        for _ in range(1 + (draw.random() < 0.5)):  # half of them twice
            child = begin(work, (job.at(place), job.once, str(place)))
            time.sleep(draw.uniform(0, 1) * usual)
            child[0].kill()
            deaths += finish(child)[0] == -signal.SIGKILL
            assert commits(place) >= committed
            committed = commits(place)
        assert worked(job, place) == "done"
        assert results(place) == expected
    print(f"soak: {name}: {deaths} kills, {usual:.1f} s undisturbed")  # noqa: T201


def begin_only(job: Job, place: Path) -> Path:
    """Do the first command of a job, or a part of the only one."""
    first = job.at(place)[0]
    if len(job.commands) == 1 and job.name not in ("llm-qa", "suite"):
        first = [*first, "--tasks", "2"]
    status, errors = call(first)
    assert status == 0, errors
    return place


def damaged(content: bytes, draw: random.Random) -> bytes:
    """A bit flipped or an end cut off."""
    if draw.random() < 0.5:
        return content[: draw.randrange(len(content))]
    place, bit = draw.randrange(len(content)), draw.randrange(8)
    return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("hf", "peft", "suite")])
def test_damage_is_named_or_harmless(name: str, whole: Any, tmp_path: Path) -> None:
    """Of any file of the work's directory."""
    job, done, _ = whole(name)
    begun, expected = begin_only(job, tmp_path / "begun" / name), results(done)
    draw, outcomes = random.Random(name), Counter()
    files = [path for path in sorted(begun.rglob("*")) if path.is_file() and path.stat().st_size]
    for path in files:
        for number in range(TIMES):
            place = tmp_path / f"{len(outcomes)}-{number}" / name
            shutil.copytree(begun, place)
            hurt = place / path.relative_to(begun)
            hurt.write_bytes(damaged(path.read_bytes(), draw))
            outcomes[outcome(job.at(place), place, hurt, expected)] += 1
            shutil.rmtree(place.parent)
    print(f"soak: {name}: {len(files)} files, {dict(outcomes)}")  # noqa: T201
    assert outcomes["named"]


def outcome(commands: list[list[str]], place: Path, hurt: Path, expected: dict) -> str:
    """Whether continuing names the damage, or ends as if there were none."""
    for command in commands:
        status, errors = call(command)
        if status:
            line = one_line(status, errors)
            assert str(place) in line, f"{hurt}: {line}"
            return "named"
    files = results(place)
    # What tells how a stream was made has no checksum; the stream itself has one.
    records = {"manifest.json", "replies.jsonl"}
    wanted = [name for name in expected if Path(name).name not in records]
    differing = [name for name in wanted if files.get(name) != expected[name]]
    assert differing == [], f"{hurt}: {differing}"
    return "harmless"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", NAMES)
def test_nothing_behind_a_link_changes(name: str, whole: Any, tmp_path: Path) -> None:
    """Every file and every folder in turn is somebody else's, reached by a link."""
    job, _, _ = whole(name)
    begun = begin_only(job, tmp_path / "begun" / name)
    outcomes = Counter()
    for number, part in enumerate(sorted(path.relative_to(begun) for path in begun.rglob("*"))):
        place, foreign = tmp_path / f"{number}" / name, tmp_path / f"{number}" / "foreign"
        shutil.copytree(begun, place)
        foreign.mkdir()
        (place / part).rename(foreign / part.name)
        if (foreign / part.name).is_dir():
            (foreign / part.name / "theirs.safetensors").write_text("theirs")
            (foreign / part.name / ".theirs").write_text("theirs")
        (place / part).symlink_to(foreign / part.name)
        before = contents(foreign)
        status = 0
        for command in job.at(place):
            status, errors = call(command)
            if status:
                one_line(status, errors)
                break
        assert contents(foreign) == before, part
        outcomes["refused" if status else "done"] += 1
        shutil.rmtree(place.parent)
    print(f"soak: {name}: {dict(outcomes)} with a part behind a link")  # noqa: T201
    # An export only reads the run, which is finished; what is read may be a link.
    assert outcomes["refused"] or name in ("hf", "peft")


@pytest.mark.parametrize("name", NAMES)
def test_moved_while_it_works(name: str, whole: Any, tmp_path: Path) -> None:
    """It ends with a line or with its result; what was moved continues where it was."""
    job, done, usual = whole(name)
    draw, outcomes = random.Random(name + "moved"), Counter()
    for number in range(TIMES):
        place, moved = tmp_path / f"{number}" / name, tmp_path / f"{number}" / "moved"
        child = begin(work, (job.at(place), job.once, str(place)))
        while not place.exists() and child[0].is_alive():
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.6) * usual)
        os.rename(place, moved)
        outcomes["done" if ended(child) == "done" else "refused"] += 1
        if place.exists():  # of a later command, which found nothing there
            assert len(job.commands) > 1 or done_before(moved, done)
            shutil.rmtree(place)
        os.rename(moved, place)
        assert worked(job, place) == "done"
        assert results(place) == results(done)
    print(f"soak: {name}: {dict(outcomes)}, moved meanwhile")  # noqa: T201


def done_before(moved: Path, done: Path) -> bool:
    """Whether the work had ended when its directory was moved."""
    return contents(moved).keys() == contents(done).keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk(name: str, whole: Any, tmp_path: Path) -> None:
    """No file can grow beyond a size: one line, and with room again the undisturbed result."""
    job, done, _ = whole(name)
    sizes = sorted(path.stat().st_size for path in done.rglob("*") if path.is_file())
    draw, outcomes = random.Random(name + "full"), Counter()
    for number in range(TIMES):
        place = tmp_path / f"{number}" / name
        words = worked(job, place, file_bytes=draw.randrange(1, sizes[-1]))
        assert words != "done"
        outcomes["file too large" if "too large" in words.lower() else words] += 1
        assert worked(job, place) == "done"
        assert results(place) == results(done)
    print(f"soak: {name}: {dict(outcomes)}, on a full disk")  # noqa: T201
