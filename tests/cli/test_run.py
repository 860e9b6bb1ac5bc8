"""`holdfast run` on a tiny backbone: it learns, continues, and resolves without training."""

from __future__ import annotations

import json

import pytest
import yaml

from holdfast.core.config import differences
from holdfast.learning.config import RunConfig
from holdfast.recipes import recipe
from holdfast.results import RecallMatrix


@pytest.mark.parametrize("tag", ["online_ewc", "si_sd_replay_merge", "si_sd_replay_osrm"])
def test_a_tag_of_the_paper_learns(tag, holdfast, settings, tmp_path):
    outcome = holdfast("run", "demo", f"method={tag}", *settings, "--out", tmp_path / "run")
    assert outcome.status == 0, outcome.err
    matrix = RecallMatrix.load(tmp_path / "run" / "matrix.csv")
    assert matrix.observed_rows == (0, 1, 2, 3)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["method"] == tag


def test_asking_for_more_continues_and_asking_again_is_free(holdfast, settings, tmp_path):
    first, whole = tmp_path / "first", tmp_path / "whole"
    common = ["run", "demo", "method=si_replay_merge", *settings]
    assert holdfast(*common, "--out", first, "--tasks", 1).status == 0
    assert holdfast(*common, "--out", first, "--tasks", 3).status == 0
    assert holdfast(*common, "--out", whole).status == 0
    assert (first / "matrix.csv").read_bytes() == (whole / "matrix.csv").read_bytes()
    log = (first / "log.jsonl").read_bytes()
    assert holdfast(*common, "--out", first).status == 0
    assert (first / "log.jsonl").read_bytes() == log


def test_a_yaml_file_is_a_configuration(holdfast, settings, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"method": "sd", "lora": {"alpha": 3}}))
    outcome = holdfast("run", path, *settings, "--out", tmp_path / "run", "--tasks", 1)
    assert outcome.status == 0, outcome.err
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (recorded["method"], recorded["lora"]["alpha"], recorded["lora"]["rank"]) == ("sd", 3, 2)


def test_a_dry_run_resolves_and_writes_nothing(holdfast, tmp_path):
    outcome = holdfast("run", "paper", "optim.lr=1e-3", "--dry-run", "--out", tmp_path / "run")
    assert outcome.status == 0, outcome.err
    resolved = yaml.safe_load(outcome.out)
    assert resolved["optim"]["lr"] == 1e-3
    assert resolved["backbone"]["name"] == "Qwen/Qwen3-4B-Base"
    # 100 tasks, 10 epochs, 13 minibatches of 8 in 100 items
    assert "13000 optimiser steps" in outcome.out
    assert "# maps and lengths are not checked: backbone.name = Qwen/Qwen3-4B-Base" in outcome.out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("backbone.device=cude", "backbone.device = cude: not available here"),
        ("template.max_length=5", "its answer would be cut at template.max_length = 5"),
        ("backbone.name=/nowhere/model", "no causal language model could be loaded"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would(override, message, holdfast, tmp_path):
    refused = holdfast("run", "demo", override, "--dry-run", "--out", tmp_path / "run")
    assert refused.status == 2 and message in refused.err and refused.out == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "weight"), [("llm_qa", 0.5), ("real_qa", 0.75), ("mine", 0.75)])
def test_a_recipe_knows_its_data_sets(name, weight, holdfast, tmp_path):
    where = tmp_path / name
    assert holdfast("stream", "symbol-qa", "--out", where, "--tasks", 2, "--items", 2).status == 0
    own = tmp_path / "own.yaml"
    own.write_text(holdfast("recipes", "paper").out)
    for config in ("paper", own):
        planned = holdfast("run", config, f"stream.name={where}", "--dry-run")
        assert planned.status == 0, planned.err
        assert yaml.safe_load(planned.out)["replay"]["weight"] == weight
    chosen = holdfast("run", "paper", f"stream.name={where}", "replay.weight=0.1", "--dry-run")
    assert yaml.safe_load(chosen.out)["replay"]["weight"] == 0.1


def test_what_was_published_differs_in_two_settings():
    ours, theirs = (RunConfig.of(recipe(name)).numbers() for name in ("paper", "published"))
    assert differences(ours, theirs) == [
        'evaluation.match: "auto" -> "released"', "sampling.top_k: null -> 50"
    ]  # fmt: skip


def test_recipes_are_listed_and_printed(holdfast):
    listed = holdfast("recipes").out
    assert "demo " in listed
    assert "paper " in listed
    assert yaml.safe_load(holdfast("recipes", "paper").out)["sampling"]["samples"] == 300
