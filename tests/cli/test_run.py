"""`holdfast run` on a tiny backbone, and its mistakes: one line that says what is wrong."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from holdfast.core.config import differences
from holdfast.learning.config import RunConfig
from holdfast.recipes import recipe
from holdfast.results import RecallMatrix
from tests.cli.conftest import refused

GOOD = {"question": "where is the lamp?", "answer": "on the pier"}


def test_asking_for_more_continues_and_asking_again_is_free(holdfast, settings, tmp_path):
    first, whole = tmp_path / "first", tmp_path / "whole"
    common = ["run", "demo", "method=si_sd_replay_merge", *settings]
    assert holdfast(*common, "--out", first, "--tasks", 1).status == 0
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    assert "where 1 tasks are learned" in holdfast(*common, "--out", first, "--dry-run").out
    other = holdfast(*common, "--out", first, "optim.lr=0.25", "--dry-run")
    assert other.status == 2 and "optim.lr: 0.002 -> 0.25" in other.err
    assert {path: path.read_bytes() for path in first.rglob("*") if path.is_file()} == before
    assert holdfast(*common, "--out", first, "--tasks", 3).status == 0
    assert holdfast(*common, "--out", whole).status == 0
    assert RecallMatrix.load(whole / "matrix.csv").observed_rows == (0, 1, 2, 3)
    assert (first / "matrix.csv").read_bytes() == (whole / "matrix.csv").read_bytes()
    log = (first / "log.jsonl").read_bytes()
    begun = first / ".report.html.4999999.part"  # by a process that was killed
    begun.touch()
    assert holdfast(*common, "--out", first).status == 0
    assert (first / "log.jsonl").read_bytes() == log and not begun.exists()


def test_a_yaml_file_is_a_configuration_that_a_dry_run_prints_whole(holdfast, settings, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"method": "sd", "lora": {"alpha": 3}}))
    first = holdfast("run", path, *settings, "--dry-run")
    assert first.status == 0, first.err
    plan = yaml.safe_load(first.out)
    assert (plan["method"], plan["lora"]["alpha"], plan["lora"]["rank"]) == ("sd", 3, 2)
    (tmp_path / "again.yaml").write_text(first.out)
    assert holdfast("run", tmp_path / "again.yaml", "--dry-run").out == first.out


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


@pytest.mark.parametrize(("name", "weight"), [("llm_qa", 0.5), ("mine", 0.75)])
def test_a_recipe_knows_its_data_sets(name, weight, holdfast, tmp_path):
    where = tmp_path / name
    assert holdfast("stream", "symbol-qa", "--out", where, "--tasks", 2, "--items", 2).status == 0
    recipe_file = tmp_path / "own.yaml"
    recipe_file.write_text(holdfast("recipes", "paper").out)
    for config, more, expected in (
        ("paper", [], weight),
        (recipe_file, [], weight),
        ("paper", ["replay.weight=0.1"], 0.1),
    ):
        planned = holdfast("run", config, f"stream.name={where}", *more, "--dry-run")
        assert yaml.safe_load(planned.out)["replay"]["weight"] == expected


def test_what_was_published_differs_in_two_settings():
    ours, theirs = (RunConfig.of(recipe(name)).numbers() for name in ("paper", "published"))
    assert differences(ours, theirs) == [
        'evaluation.match: "auto" -> "released"', "sampling.top_k: null -> 50"
    ]  # fmt: skip


def test_recipes_are_listed_and_printed(holdfast):
    listed = holdfast("recipes").out
    assert "demo " in listed and "paper " in listed
    assert yaml.safe_load(holdfast("recipes", "paper").out)["sampling"]["samples"] == 300


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ["facts.jsonl", "holds no facts"]),
        (["{oops"], ["facts.jsonl", "line 1"]),
        ([json.dumps(GOOD), json.dumps({**GOOD, "answer": "at sea"})], ["line 2", "two answers"]),
        ([json.dumps({**GOOD, "answer": "a}b"})], ['task "1" item 1', "braces"]),
    ],
)
def test_bad_facts(lines, words, holdfast, tmp_path):
    path = tmp_path / "facts.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    refused(holdfast("run", "demo", f"stream.name={path}", "--out", tmp_path / "run"), *words)
    assert not [*(tmp_path / "run").glob("[!.]*")]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("optim.ls=1", ["optim.ls", "optim.lr"]),
        ("optum.lr=1", ["optum", "optim"]),
        ("optim.lr=fast", ["optim.lr", "fast"]),
        ("lora.dropout=1.5", ["lora.dropout"]),
        ("lora.rank=100000", ["lora.rank"]),
        ("sampling.top_p=.nan", ["sampling.top_p"]),
        ("method=si_sdd", ["sdd", "sd"]),
        ("method=olora_merge", ["olora", "merge"]),
        ("method=si_si", ["twice"]),
        ("lr", ["KEY=VALUE"]),
        ("lora.targets=[nowhere]", ["nowhere", "all-linear"]),
        ("lora.layers=[0,99]", ["layer 99", "the last is"]),
        ("lora.layers=[-1]", ["lora.layers"]),
        ("stream.name=symbol_qo", ["symbol_qo", "symbol_qa"]),
        ("backbone.device=cude", ["backbone.device = cude: not available here"]),
        ("template.max_length=5", ["its answer would be cut at template.max_length = 5"]),
        ("backbone.name=/nowhere/model", ["no causal language model could be loaded"]),
    ],
)
def test_bad_settings(setting, words, holdfast, settings, tmp_path):
    outcome = holdfast("run", "demo", *settings, setting, "--dry-run", "--out", tmp_path / "run")
    refused(outcome, *words)
    assert outcome.out == "" and not (tmp_path / "run").exists()


def test_a_model_without_a_tokenizer(holdfast, settings, backbone_directory, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(backbone_directory, bare)
    for path in bare.glob("*token*"):
        path.unlink()
    outcome = holdfast("run", "demo", *settings, f"backbone.name={bare}", "--out", tmp_path / "run")
    refused(outcome, "bare", "tokenizer")


def test_places_and_horizons(holdfast, settings, tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "list.yaml").write_text("- method\n- seed\n")
    common = ("run", "demo", *settings)
    refused(holdfast(*common, "--out", tmp_path / "file"), "file")
    refused(holdfast(*common, "--out", tmp_path / "file" / "below"), "below")
    refused(holdfast(*common, "--out", tmp_path), "no trajectory")
    for horizon in (0, -2, 4):
        outcome = holdfast(*common, "--out", tmp_path / "r", "--tasks", horizon)
        refused(outcome, str(horizon), "3")
    assert (tmp_path / "file").read_text() == "mine"
    refused(holdfast(*common), "--out")
    for config, *words in (
        ["domo", "domo", "demo"],
        [tmp_path / "no.yaml", "no.yaml"],
        [tmp_path / "list.yaml", "list.yaml: must hold a mapping"],
        [tmp_path],
    ):
        refused(holdfast("run", config, "--out", tmp_path / "r"), *words)
