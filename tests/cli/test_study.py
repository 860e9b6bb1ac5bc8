"""`holdfast search` and `holdfast suite`, planned and for real."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from holdfast.cli import study
from holdfast.studies import local
from tests.studies.forking import forking
from tests.studies.inline import Inline


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are advanced by this process, not by workers."""
    monkeypatch.setattr(study, "executor", lambda *_: Inline())


def test_the_papers_search_is_90_45_23_10_and_2540(holdfast) -> None:
    plan = holdfast("search", "paper", "--dry-run")
    assert plan.status == 0, plan.err
    lines = [line.split() for line in plan.out.splitlines()]
    assert lines[1:5] == [
        ["10", "90", "270", "900"],
        ["20", "45", "135", "450"],
        ["50", "23", "69", "690"],
        ["100", "10", "30", "500"],
    ]
    assert plan.out.splitlines()[5] == (
        "2,540 tasks a seed instead of 9,000 (28.2%), 3 seeds: 7,620"
    )


@pytest.mark.parametrize(("arguments", "cells"), [([], 63), (["--seeds", "41"], 21)])
def test_the_papers_suite_is_21_methods(holdfast, arguments: list[str], cells: int) -> None:
    plan = holdfast("suite", "paper", *arguments, "--dry-run")
    assert plan.status == 0, plan.err
    assert plan.out.splitlines()[-1] == f"{cells} cells of 100 tasks of symbol_qa"
    assert "si_sd_replay_olora seed 41" in plan.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["search", "papr"],
            '"papr" is neither a recipe of a search nor a YAML file; did you mean',
        ),
        (["search", "small"], "a study needs a directory for its results; add --out DIR"),
        (["search", "small", "seed=3", "--dry-run"], "seed=3: the study sets seed itself"),
        (
            ["search", "paper", "replay.weight=0.9", "--dry-run"],
            "replay.weight=0.9: the space searches this setting; leave it out",
        ),
        (["suite", "paper", "--dataset", "x", "--dry-run"], '"x" is no data set of the suite'),
        (["suite", "factorial", "--seeds", "a", "--dry-run"], "--seeds a: write whole numbers"),
        (["suite", "factorial", "--methods", "sii", "--dry-run"], 'method sii: "sii" is no mech'),
        (["search", "own.yaml", "--dry-run"], "search own.yaml: schedule = {"),
        (
            ["suite", "factorial", "--slurm", "partition=gpu", "--dry-run"],
            "--slurm goes with --executor slurm; add it",
        ),
        (
            ["suite", "factorial", "--executor", "slurm", "--slurm", "partitoin=gpu", "--dry-run"],
            "--slurm: unknown key partitoin; did you mean partition?",
        ),
        (
            ["search", "small", "--executor", "slurm", "--slurm", "time=2:00:00", "--dry-run"],
            "--slurm: unknown key time; write timeout_min, in minutes",
        ),
        (
            ["search", "small", "--executor", "slurm", "--slurm", "account=0123", "--dry-run"],
            "--slurm: account = 83: Input should be a valid string",
        ),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    holdfast, tmp_path: Path, monkeypatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(
        "base: demo\nspace: {weight: [none, si]}\n"
        "schedule: {horizons: [4, 2], survivors: [1]}\nseeds: [1]\n"
    )
    refused = holdfast(*arguments)
    assert refused.status == 2
    assert refused.err.startswith(f"holdfast: {message}")
    assert refused.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["own.yaml"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "there is no sbatch here; run the command on a machine of a Slurm cluster"),
        (["--workers-per-gpu", "2"], "--workers-per-gpu is not for --executor slurm"),
    ],
)
def test_a_study_without_slurm_leaves_no_directory(
    holdfast, settings: list[str], tmp_path: Path, monkeypatch, options: list[str], message: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "out"
    refused = holdfast(
        "suite", "factorial", *settings, "--out", out, "--executor", "slurm", *options
    )
    assert refused.status == 2 and message in refused.err
    assert refused.err.startswith("holdfast: ") and refused.err.count("\n") == 1
    assert not out.exists()


@pytest.mark.usefixtures("inline", "quick")
def test_a_suite_and_its_tables(holdfast, tmp_path: Path, tiny_directory: Path) -> None:
    out = tmp_path / "suite"
    ask = [
        *("suite", "factorial", "--methods", "vanilla,replay_merge", "--seeds", "1,2"),
        *(f"backbone.name={tiny_directory}", "stream.tasks=2", "stream.items_per_task=4"),
        *("optim.epochs=1", "sampling.samples=4", "sampling.max_new_tokens=6", "lora.rank=2"),
        *("evaluation.max_new_tokens=16", "--out", out),
    ]
    done = holdfast(*ask)
    assert done.status == 0, done.err
    with (out / "cells.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("vanilla", "1"),
        ("vanilla", "2"),
        ("replay_merge", "1"),
        ("replay_merge", "2"),
    ]
    assert all(row["error"] == "" and row["horizon"] == "2" for row in rows)
    assert all((out / "cells" / row["cell"] / "matrix.csv").exists() for row in rows)
    again = holdfast(*ask)
    assert again.out == done.out
    assert "0 running" in again.err
    whole = (out / "cells.csv").read_bytes()
    part = holdfast(*ask[:2], "--methods", "vanilla", "--seeds", "2", *ask[6:])
    assert part.status == 0, part.err
    assert "replay_merge" not in part.out.splitlines()[1]
    assert (out / "cells.csv").read_bytes() == whole  # of all that was ever asked for
    # What changes no number is no other study.
    fast = ("backbone.device=cpu", "evaluation.tokens_per_batch=64", "sampling.batch=3")
    assert holdfast(*ask, *fast).out == done.out
    other = holdfast(*ask, "sampling.samples=5")
    assert other.status == 2 and "settings.sampling.samples: 4 -> 5" in other.err
    # Seeds at unlike horizons have no mean.
    short = holdfast(*ask[:4], "--seeds", "3", *ask[6:], "--tasks", "1")
    assert short.status == 0, short.err
    with (out / "summary.csv").open(newline="") as file:
        lines = [(row["method"], row["horizon"], row["seeds"]) for row in csv.DictReader(file)]
    assert sorted(lines) == [
        ("replay_merge", "1", "1"),
        ("replay_merge", "2", "2"),
        ("vanilla", "1", "1"),
        ("vanilla", "2", "2"),
    ]


@pytest.mark.usefixtures("inline", "quick")
def test_a_search_leads_to_its_final_runs(holdfast, tmp_path: Path, tiny_directory: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "base: full_stack\nseeds: [1]\norder_seed: 5\n"
        "schedule: {horizons: [1, 2], survivors: [5]}\n"
        "space: {weight: [none, {si: {si.strength: [1, 2]}}], allocation: [shared, merge]}\n"
        "set:\n"
        f"  backbone.name: {tiny_directory}\n"
        "  stream.tasks: 3\n  stream.items_per_task: 4\n  optim.epochs: 1\n  lora.rank: 2\n"
        "  evaluation.max_new_tokens: 16\n"
    )
    searched = tmp_path / "search"
    ask = ("suite", "--from-search", searched, "--seeds", "4,5", "--out", tmp_path / "final")
    early = holdfast(*ask)
    assert early.status == 2 and "holds no search with a leaderboard" in early.err
    assert holdfast("search", tmp_path / "own.yaml", "--out", searched).status == 0
    done = holdfast(*ask)
    assert done.status == 0, done.err
    with (searched / "leaderboard.csv").open(newline="") as file:
        best = {}
        for row in csv.DictReader(file):
            best.setdefault("merge" in row["method"], row)  # the first of each allocation
    with (tmp_path / "final" / "cells.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    methods = {row["method"] for row in best.values()}
    assert [(row["method"], row["seed"]) for row in rows] == [
        (row["method"], seed) for row in best.values() for seed in ("4", "5")
    ]
    for row in rows:
        config = json.loads((tmp_path / "final/cells" / row["cell"] / "config.json").read_text())
        assert row["horizon"] == "3"
        assert config["config"]["stream"]["order_seed"] is None
        assert config["config"]["lora"]["rank"] == 2
        strength = best["merge" in row["method"]]["si.strength"]
        if strength:
            assert config["config"]["si"]["strength"] == float(strength)
    assert all(method in done.out for method in methods)
    assert holdfast(*ask).out == done.out
    # Compositions by name, each with its best settings; another set of cells of the same suite.
    more = holdfast(*ask, "--methods", "si_merge,vanilla", "--dry-run")
    assert more.out.splitlines() == [
        *[f"{name} seed {seed}" for name in ("si_merge", "vanilla") for seed in (4, 5)],
        "4 cells of 3 tasks of symbol_qa",
    ]
    for wrong, message in (
        (("--methods", "replay"), "no candidate replay has a score"),
        (("--dataset", "x"), "--dataset is for recipes"),
        (("paper",), "paper and --from-search: choose one"),
    ):
        refused = holdfast(*ask, *wrong)
        assert refused.status == 2 and message in refused.err
    assert holdfast(*ask, "stream.tasks=2", "--dry-run").out.endswith(
        "4 cells of 2 tasks of symbol_qa\n"
    )
    other = holdfast("suite", "factorial", *ask[3:], f"backbone.name={tiny_directory}")
    assert other.status == 2 and "holds a study with other settings" in other.err


def test_a_cell_that_failed_is_told_by_the_status(
    holdfast, tmp_path: Path, tiny_directory: Path, monkeypatch
) -> None:
    workers = forking(monkeypatch)
    out = tmp_path / "suite"
    ask = [
        *("suite", "factorial", "--methods", "vanilla,merge", "--seeds", "1"),
        *(f"backbone.name={tiny_directory}", "stream.tasks=2", "stream.items_per_task=4"),
        *("optim.epochs=1", "lora.rank=2", "evaluation.max_new_tokens=16"),
        *("evaluation.rows=horizon", "--out", out),
    ]
    assert holdfast(*ask).status == 0
    assert workers
    # No row was asked for after the first task.
    unmeasured = holdfast(*ask, "--tasks", "1")
    assert unmeasured.status == 2
    assert unmeasured.err.splitlines()[-1] == (
        "holdfast: 2 of 2 cells failed, as said above; repeat the command to try again"
    )
    assert unmeasured.out.count("recall was not measured after task 1") == 2
    assert "report:" not in unmeasured.out
    with (out / "cells.csv").open(newline="") as file:
        assert all("not measured" in row["error"] for row in csv.DictReader(file))


@pytest.mark.parametrize(
    ("visible", "count", "gpus"),
    [(None, 2, ["0", "1"]), ("2,3", 2, ["2", "3"]), ("GPU-a, GPU-b,-1", 2, ["GPU-a", "GPU-b"])],
)
def test_workers_take_the_gpus_that_the_user_may_use(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int, gpus: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    given: list[dict[str, object]] = []
    monkeypatch.setattr(
        local, "LocalExecutor", lambda workers, **more: given.append({"workers": workers, **more})
    )
    local_kind = study.Kind.LOCAL
    study.executor(local_kind, None, 3, 2, None, "auto", Path("out"), None)
    study.executor(local_kind, None, 16, 1, None, "cpu", Path("out"), None)
    assert given == [
        {"workers": 3, "devices": gpus, "workers_per_gpu": 2, "threads": None},
        {"workers": 16, "threads": None},
    ]
