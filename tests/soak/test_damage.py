"""A bit flipped or an end cut off in any file: it is named, or it changes no result."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.soak.jobs import call, jobs, one_line, results

DAMAGES = int(os.environ.get("HOLDFAST_SOAK", "1"))  # of either kind, in each file
NAMES = ["si_online_ewc_kfac_sd_replay_merge", "llm-qa"]
if DAMAGES > 1:
    NAMES += ["si_replay_olora", "sd_osrm", "memory"]


def damaged(content: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        return content[: draw.randrange(len(content))]
    place, bit = draw.randrange(len(content)), draw.randrange(8)
    return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", NAMES)
def test_damage_is_named_or_harmless(name: str, backbone_directory: Path, tmp_path: Path) -> None:
    (job,) = (job for job in jobs(tmp_path / "files", backbone_directory) if job.name == name)
    begun, whole = tmp_path / "begun" / name, tmp_path / "whole" / name
    first = job.at(begun)[:1]
    if len(job.commands) == 1 and name != "llm-qa":
        first = [[*first[0], "--tasks", "2"]]
    for command in (*first, *job.at(whole)):
        status, errors = call(command)
        assert status == 0, errors
    expected = results(whole)
    draw, outcomes = random.Random(name), Counter()
    files = [path for path in sorted(begun.rglob("*")) if path.is_file() and path.stat().st_size]
    for path in files:
        for number in range(DAMAGES):
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
