"""`holdfast search` and `holdfast suite`, planned and for real."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from holdfast.cli import study
from holdfast.studies import local
from tests.cli.conftest import refused
from tests.studies.inline import Inline


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are advanced by this process, not by workers."""
    monkeypatch.setattr(study, "executor", lambda *_: Inline())


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_papers_search_is_90_45_23_10_and_2540(holdfast) -> None:
    plan = holdfast("search", "paper", "--dry-run")
    assert plan.status == 0, plan.err
    rows = [" ".join(line.split()) for line in plan.out.splitlines()[1:5]]
    assert rows == ["10 90 270 900", "20 45 135 450", "50 23 69 690", "100 10 30 500"]
    assert "2,540 tasks a seed instead of 9,000 (28.2%), 3 seeds: 7,620\n" in plan.out


def test_the_papers_suite_is_21_methods(holdfast) -> None:
    plan = holdfast("suite", "paper", "--seeds", "41", "--dry-run")
    assert plan.status == 0, plan.err
    assert plan.out.splitlines()[-1] == "21 cells of 100 tasks of symbol_qa"
    assert "si_sd_replay_olora seed 41" in plan.out


FACTORIAL = ["suite", "factorial", "--dry-run"]
SEARCH = ["search", "small", "--dry-run"]
TWICE = ["--grid", "optim.lr=[1e-3]", "--grid", "optim.lr=[2e-3]"]
ON_SLURM = ["--executor", "slurm", "--slurm"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "papr"], '"papr" is neither a recipe of a search nor a YAML file; did you'),
        (["search", "small"], "a study needs a directory for its results; add --out DIR"),
        ([*SEARCH, "seed=3"], "seed=3: the study sets seed itself"),
        (["search", "paper", "replay.weight=0.9", "--dry-run"], "the space searches this setting"),
        (["search", "own.yaml", "--dry-run"], "search own.yaml: schedule = {"),
        (["suite", "--dry-run"], "which suite? name a recipe, a YAML file, or --from-search DIR"),
        (["suite", "paper", "--dataset", "x", "--dry-run"], '"x" is no data set of the suite'),
        ([*FACTORIAL, "--seeds", "a"], "--seeds a: write whole numbers"),
        ([*FACTORIAL, "--methods", "sii"], 'method sii: "sii" is no mech'),
        ([*FACTORIAL, *TWICE], "--grid: optim.lr is there twice; put its values in one list"),
        ([*FACTORIAL, "--slurm", "partition=gpu"], "--slurm goes with --executor slurm; add it"),
        ([*FACTORIAL, *ON_SLURM, "partitoin=gpu"], "unknown key partitoin; did you mean partition"),
        ([*SEARCH, *ON_SLURM, "time=2:00:00"], "unknown key time; write timeout_min, in minutes"),
        ([*SEARCH, *ON_SLURM, "account=0123"], "account = 83: Input should be a valid string"),
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
    refused(holdfast(*arguments), message)
    assert [path.name for path in tmp_path.iterdir()] == ["own.yaml"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--executor", "slurm"], "there is no sbatch here; run the command on a machine of a Slu"),
        (["--executor", "slurm", "--workers-per-gpu", "2"], "--workers-per-gpu is not for --execu"),
        (
            ["--workers-per-gpu", "2"],
            "--workers-per-gpu is for GPUs, and no cell uses one",
        ),
        (["--ray-address", "auto"], "--ray-address goes with --executor ray; add it"),
    ],
)
def test_a_study_without_its_cluster_leaves_no_directory(
    holdfast, settings: list[str], tmp_path: Path, monkeypatch, options: list[str], message: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "out"
    refused(holdfast("suite", "factorial", *settings, "--out", out, *options), message)
    assert not out.exists()


@pytest.mark.usefixtures("inline", "quick")
def test_a_suite_and_its_tables(holdfast, tmp_path: Path, settings, monkeypatch) -> None:
    out = tmp_path / "suite"
    common = ["suite", "factorial", *settings, "stream.tasks=2", "--out", out]
    ask = [*common, "--methods", "vanilla,replay_merge", "--seeds", "1,2"]
    monkeypatch.setattr(study, "executor", lambda *_: Inline(fails=lambda _: "no room"))
    failed = holdfast(*ask)
    assert failed.status == 2
    assert failed.err.splitlines()[-1] == (
        "holdfast: 4 of 4 cells failed, as said above; repeat the command to try again"
    )
    assert failed.out.count("no room") == 4 and "report:" not in failed.out
    assert {row["error"] for row in rows_of(out / "cells.csv")} == {"no room"}

    monkeypatch.setattr(study, "executor", lambda *_: Inline())
    done = holdfast(*ask)
    assert done.status == 0, done.err
    rows = rows_of(out / "cells.csv")
    names = [(method, seed) for method in ("vanilla", "replay_merge") for seed in "12"]
    assert [(row["method"], row["seed"]) for row in rows] == names
    assert all(row["error"] == "" and row["horizon"] == "2" for row in rows)
    assert all((out / "cells" / row["cell"] / "matrix.csv").exists() for row in rows)
    whole = (out / "cells.csv").read_bytes()
    part = holdfast(*common, "--methods", "vanilla", "--seeds", "2")
    assert part.status == 0, part.err
    assert "replay_merge" not in part.out.splitlines()[1]
    assert (out / "cells.csv").read_bytes() == whole  # of all that was ever asked for
    # What changes no number is no other study.
    again = holdfast(*ask, "backbone.device=cpu", "evaluation.tokens_per_batch=64")
    assert again.out == done.out and "0 running" in again.err
    refused(holdfast(*ask, "sampling.samples=5"), "settings.sampling.samples: 4 -> 5")
    # Seeds at unlike horizons have no mean.
    short = holdfast(*common, "--methods", "vanilla", "--seeds", "3", "--tasks", "1")
    assert short.status == 0, short.err
    means = [(row["method"], row["horizon"], row["seeds"]) for row in rows_of(out / "summary.csv")]
    assert sorted(means) == [("replay_merge", *"22"), ("vanilla", *"11"), ("vanilla", *"22")]


@pytest.mark.usefixtures("inline", "quick")
def test_a_search_leads_to_its_final_runs(
    holdfast, tmp_path: Path, backbone_directory: Path
) -> None:
    (tmp_path / "own.yaml").write_text(
        "base: full_stack\nseeds: [1]\norder_seed: 5\n"
        "schedule: {horizons: [1, 2], survivors: [5]}\n"
        "space: {weight: [none, {si: {si.strength: [1, 2]}}], allocation: [shared, merge]}\n"
        "set:\n"
        f"  backbone.name: {backbone_directory}\n"
        "  stream.tasks: 3\n  stream.items_per_task: 4\n  optim.epochs: 1\n  lora.rank: 2\n"
        "  evaluation.max_new_tokens: 16\n"
    )
    searched = tmp_path / "search"
    ask = ("suite", "--from-search", searched, "--seeds", "4,5", "--out", tmp_path / "final")
    refused(holdfast(*ask), "holds no search with a leaderboard")
    assert holdfast("search", tmp_path / "own.yaml", "--out", searched).status == 0
    leaders = searched / "leaderboard.json"
    whole = leaders.read_text()
    trace = json.loads((searched / "trace.json").read_text())
    # As a search that was killed after its first horizon leaves it.
    leaders.write_text(json.dumps([row for row in trace if row["horizon"] == 1]))
    refused(holdfast(*ask), "the search has come to horizon 1, and 5 candidates go on; finish it")
    leaders.write_text(json.dumps([{**row, "score": None} for row in json.loads(whole)]))
    refused(holdfast(*ask), "holds no search with a leaderboard")  # where every candidate failed
    leaders.write_text(whole)
    plan, elsewhere = searched / "study.json", searched / "store.json"
    recorded = plan.read_text()
    plan.write_text('{"study": "search"}')
    refused(holdfast(*ask), "study.json or store.json is damaged")
    plan.write_text(recorded)
    elsewhere.write_text("{}")
    refused(holdfast(*ask), "study.json or store.json is damaged")
    elsewhere.unlink()
    done = holdfast(*ask)
    assert done.status == 0, done.err
    best: dict[bool, dict[str, str]] = {}
    for row in rows_of(searched / "leaderboard.csv"):
        best.setdefault("merge" in row["method"], row)  # the first of each allocation
    rows = rows_of(tmp_path / "final" / "cells.csv")
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
    # Compositions by name, each with its best settings; another set of cells of the same suite.
    more = holdfast(*ask, "--methods", "si_merge,vanilla", "stream.tasks=2", "--dry-run")
    assert more.out.splitlines() == [
        *[f"{name} seed {seed}" for name in ("si_merge", "vanilla") for seed in (4, 5)],
        "4 cells of 2 tasks of symbol_qa",
    ]
    for wrong, message in (
        (("--methods", "replay"), "no candidate replay has a score"),
        (("--dataset", "x"), "--dataset is for recipes"),
        (("paper",), "paper and --from-search: choose one"),
    ):
        refused(holdfast(*ask, *wrong), message)
    other = holdfast("suite", "factorial", *ask[3:], f"backbone.name={backbone_directory}")
    refused(other, "holds a study with other settings")


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [(None, ["0", "1"]), ("2,3", ["2", "3"]), ("GPU-a, GPU-b,-1", ["GPU-a", "GPU-b"])],
)
def test_workers_take_the_gpus_that_the_user_may_use(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, gpus: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    given: list[dict[str, object]] = []
    monkeypatch.setattr(
        local, "LocalExecutor", lambda workers, **more: given.append({"workers": workers, **more})
    )
    study.executor("local", None, 3, 2, None, "auto", Path("out"), None)
    study.executor("local", None, 16, 1, None, "cpu", Path("out"), None)
    assert given == [
        {"workers": 3, "devices": gpus, "workers_per_gpu": 2, "threads": None},
        {"workers": 16, "devices": [], "workers_per_gpu": 1, "threads": None},
    ]
