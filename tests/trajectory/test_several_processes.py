"""Two processes that share a run learn what one learns, and lose nothing when one of them dies."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from holdfast import HoldfastError, RunConfig, Trajectory, recipe
from holdfast.cli.main import app
from holdfast.core import processes
from holdfast.results.items import read_rows
from tests.documentation import blocks_of
from tests.forked import Forked
from tests.made_once import made_once
from tests.trajectory.outcome import commit_of, numbers_of, tasks_logged, tensors_of
from tests.trajectory.several import Job, do, ended, learn, start_pair

PAGE = "docs/how-to/several-gpus.md"
VALUES: dict[str, Any] = {
    "seed": 3,
    # The last of four minibatches has one sequence, so one process computes what does not count.
    "stream": {"tasks": 3, "items_per_task": 7},
    "lora": {"rank": 2, "alpha": 8, "dropout": 0.0},
    "optim": {"epochs": 1, "batch_size": 2, "accumulation": 2, "lr": 0.03},
    "sampling": {"samples": 5, "max_new_tokens": 6, "keep": True},
    "online_ewc": {"sequences": 3},
    "evaluation": {"max_new_tokens": 14, "items": True},
}
# Every mechanism and every kind of moment. Masks are each process's own, so nothing is dropped.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "si_sd_replay_merge": (
        "llama",
        {
            "replay": {"minibatches_per_step": 2, "trainable_seed_row": True},
            "evaluation": {**VALUES["evaluation"], "capability": ["text"], "capability_every": 3},
        },
    ),
    "kfac_pairs_replay_merge": (
        "llama",
        {
            "optim": {**VALUES["optim"], "epochs": 2, "acquired": 0.2, "max_steps": 8},
            "balance": {"share": True, "answers": 0.5},
            "sampling": {**VALUES["sampling"], "general": 4},
            "curvature": {"exact_up_to": 16, "eigenpairs": 3, "questions": 0.5},
        },
    ),
    "online_ewc_olora": ("llama", {"backbone": {"checkpointing": True}}),
    "sd_general_osrm": ("llama", {"general": {"texts": 5, "strength": 2.0}}),
    "si_replay_osrm": (
        "gpt2",
        {
            "lora": {**VALUES["lora"], "targets": "all-linear"},
            "backbone": {"checkpointing": True},
        },
    ),
}
# In the third task a past of two is shared, and all that a boundary carries on is used.
HORIZONS = {"si_sd_replay_merge": 3, "kfac_pairs_replay_merge": 3}
COUNTED = ("task", "steps", "replay_samples", "state_bytes")
PARTS = ("sum", "counting")


def job_of(folder: Path, name: str, **options: Any) -> Job:
    backbone, sections = CASES.get(name, ("llama", {}))
    place = str(folder / options.pop("place", name))
    options = {"horizon": HORIZONS.get(name, 2), **options}
    return Job(place, {**VALUES, **sections, "method": name}, backbone=backbone, **options)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where one process, and where two, learned every case; two also began and continued one."""
    learned = made_once(tmp_path_factory, "several-processes", learn_every_case)
    return learned / "one", learned / "two"


def learn_every_case(directory: Path) -> None:
    one, two = directory / "one", directory / "two"
    two.mkdir(parents=True)
    for name in CASES:
        learn(job_of(one, name))
    learn(job_of(one, "vanilla", horizon=1))
    learn(job_of(two, "si_sd_replay_merge", place="turns", horizon=1))
    jobs = [job_of(two, name) for name in CASES]
    jobs.append(job_of(two, "si_sd_replay_merge", place="turns", horizon=2))
    jobs.append(job_of(two, "vanilla", horizon=1))
    jobs += [job_of(two, "vanilla", place=part, horizon=1, altered=part) for part in PARTS]
    for part in ("chunks", "rounding"):
        jobs.append(job_of(two, "vanilla", place=part, horizon=1, altered=part))
    do(jobs, two)


def apart(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference of two tensors, relative to the largest entry."""
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-300))


def assert_near(ours: Path, theirs: Path, rounding: float = 1e-9) -> None:
    """The same rows, verdicts and samples, and files and losses that differ by rounding."""
    horizon = commit_of(ours)["completed"]
    assert numbers_of(ours) == numbers_of(theirs)
    assert read_rows(ours, horizon) == read_rows(theirs, horizon)
    for path in theirs.glob("replay/*.jsonl"):
        assert (ours / "replay" / path.name).read_text() == path.read_text()
    names = commit_of(theirs)["files"].keys()
    assert commit_of(ours)["files"].keys() == names
    for name in names:
        left, right = load_file(ours / name), load_file(theirs / name)
        assert left.keys() == right.keys()
        for key, tensor in right.items():
            if tensor.numel():
                assert apart(left[key], tensor) < rounding, (name, key)
    for our_row, their_row in zip(logged(ours), logged(theirs), strict=True):
        for epoch, expected in zip(our_row["losses"], their_row["losses"], strict=True):
            assert epoch == pytest.approx(expected, rel=rounding)
        for key in their_row.keys() & {"text_bits_per_byte", "text_bits_per_byte_before"}:
            assert our_row[key] == pytest.approx(their_row[key], rel=rounding)
        assert [our_row[key] for key in COUNTED] == [their_row[key] for key in COUNTED]


def logged(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_learn_what_one_learns(name: str, places: tuple[Path, Path]) -> None:
    one, two = places
    tasks = list(range(1, HORIZONS.get(name, 2) + 1))
    assert tasks_logged(two / name) == tasks, "one of them writes"
    assert_near(two / name, one / name)
    learned = logged(one / name)
    if "replay" in name:
        assert learned[-1]["replay_samples"] > 2, "there is something to share"
    if "kfac" in name:
        assert learned[-1]["losses"][-1]["kfac"] > 0
        assert 0 < learned[-1]["losses"][-1]["acquired"] < 1
        state = load_file(two / name / f"state/kfac-{3:04d}.safetensors")
        assert any("_basis" in key for key in state) and any("past G " in key for key in state)
        assert learned[-1]["losses"][-1]["pairs"] > 0


def test_one_begins_two_continue_and_one_ends(places: tuple[Path, Path], tmp_path: Path) -> None:
    one, two = places
    turns = shutil.copytree(two / "turns", tmp_path / "turns")
    assert commit_of(turns)["completed"] == 2
    learn(job_of(tmp_path, "si_sd_replay_merge", place="turns"))
    assert_near(turns, one / "si_sd_replay_merge")


@pytest.mark.parametrize("part", PARTS)
def test_without_a_part_of_the_sharing_something_else_is_learned(
    part: str, places: tuple[Path, Path]
) -> None:
    """The sum of the gradients, and tokens that are computed twice."""
    one, two = places
    name = "factors/task-0001.safetensors"
    whole, expected = (load_file(place / "vanilla" / name) for place in (two, one))
    left_out = load_file(two / part / name)
    assert max(apart(whole[key], expected[key]) for key in expected) < 1e-9
    assert max(apart(left_out[key], expected[key]) for key in expected) > 1e-3


def test_a_loss_in_chunks_is_shared_too(places: tuple[Path, Path]) -> None:
    one, two = places
    assert_near(two / "chunks", one / "vanilla")


def test_processes_that_round_otherwise_do_not_drift_apart(places: tuple[Path, Path]) -> None:
    """That their factors are the same bits at the end, they have found out themselves."""
    one, two = places
    assert_near(two / "rounding", one / "vanilla", rounding=1e-6)


def torchrun(words: str, folder: Path) -> Forked:
    """A command of the page, by the torchrun that is installed beside this Python."""
    name, *command = shlex.split(words)
    assert name == "torchrun"
    module = "torch.distributed.run"
    return Forked(command, module=module, cwd=folder, stdout="pipe", stderr="pipe")


def test_a_killed_process_loses_nothing_and_the_same_command_continues(
    tmp_path: Path, backbone_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's command, which torchrun repeats after the kill; then one process goes on."""
    started, continued = [unit for block in blocks_of(PAGE) for unit, _ in block.units][:2]
    settings = [
        f"backbone.name={backbone_directory}", "backbone.precision=float64", "stream.tasks=9",
        "stream.items_per_task=2", "optim.epochs=1", "lora.rank=2", "lora.dropout=0.0",
        "sampling.samples=4", "sampling.max_new_tokens=4", "evaluation.max_new_tokens=24",
    ]  # fmt: skip
    tiny = " ".join(settings)
    command = started.replace("torchrun", "torchrun --max-restarts 1")
    running = torchrun(f"{command} {tiny} --tasks 8", tmp_path)
    place = tmp_path / "runs" / "two"
    patience = time.monotonic() + 60
    while not (place / "state" / "commit.json").exists() and time.monotonic() < patience:
        time.sleep(0.01)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[1]), signal.SIGKILL)
    output, errors = running.communicate(timeout=120)
    assert running.wait() == 0, errors
    lines = [line for line in errors.splitlines() if line.startswith("holdfast: ")]
    assert len(lines) == 1 and "kept" in lines[0] and "the same command continues" in lines[0]
    assert output.splitlines()[-1] == "runs/two" and output.count("report: ") == 1
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", shlex.split(f"{continued} {tiny}"))
    with pytest.raises(SystemExit, match=r"^0$"):
        app()
    assert tasks_logged(place) == list(range(1, 10))
    config = RunConfig.of(recipe("demo"), settings)
    straight = Trajectory(config, tmp_path / "straight")
    straight.advance()
    assert numbers_of(place) == numbers_of(tmp_path / "straight")
    ours, theirs = tensors_of(Trajectory(config, place).learner()), tensors_of(straight.learner())
    assert max(apart(ours[key], theirs[key]) for key in theirs) < 1e-5, "norms are in float32"


def test_a_mistake_of_two_processes_is_one_line_and_status_2(tmp_path: Path) -> None:
    """Of both; torch may warn besides that the other has gone."""
    words = ("run", "demo", "optim.lrr=1", "--out", "run")
    results = ended(start_pair(*words, module="holdfast", cwd=tmp_path))
    assert [(status, output) for status, output, _ in results] == 2 * [(2, "")]
    errors = "".join(errors for *_, errors in results)
    lines = [line for line in errors.splitlines() if line.startswith("holdfast: ")]
    assert lines == ["holdfast: configuration: unknown key optim.lrr; did you mean optim.lr?"]
    assert "Traceback" not in errors and not (tmp_path / "run").exists()


def test_a_verb_that_is_no_run_refuses_to_be_started_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "world_size", lambda: 2)
    result = CliRunner().invoke(app, ["ask", str(tmp_path / "memory"), "Who?"])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert result.stderr.startswith("holdfast: ask is work for one process, and 2 were started")


def test_a_rank_that_nobody_has_is_refused_before_anyone_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = {"RANK": "5", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    with (
        pytest.raises(HoldfastError, match="RANK = 5 is none of WORLD_SIZE = 2"),
        processes.joined(),
    ):
        pass
