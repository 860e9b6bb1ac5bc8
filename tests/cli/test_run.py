"""`holdfast run` on a tiny backbone, and its mistakes: one line that says what is wrong."""

from __future__ import annotations

import pytest
import yaml

from holdfast.core.config import differences
from holdfast.learning.config import RunConfig
from holdfast.recipes import recipe
from holdfast.results import RecallMatrix
from tests.cli.conftest import refused


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
        where_else = "stream.name=llm_qa"  # the last one counts
        planned = holdfast("run", config, where_else, f"stream.name={where}", *more, "--dry-run")
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
    ("setting", "words"),
    [
        ("optim.ls=1", ["optim.ls", "optim.lr"]),
        ("lora.dropout=1.5", ["lora.dropout"]),
        ("sampling.top_p=.nan", ["sampling.top_p"]),
        ("method=olora_merge", ["olora", "merge"]),
        ("lora.targets=[nowhere]", ["nowhere", "all-linear"]),
        ("lora.layers=[0,99]", ["layer 99", "the last is"]),
        ("lora.layers=[-1]", ["lora.layers"]),
        ("stream.name=symbol_qo", ["symbol_qo", "symbol_qa"]),
        ("backbone.device=cude", ["backbone.device = cude: not available here"]),
        ("template.max_length=5", ["its answer would be cut at template.max_length = 5"]),
    ],
)
def test_bad_settings(setting, words, holdfast, settings, tmp_path):
    outcome = holdfast("run", "demo", *settings, setting, "--dry-run", "--out", tmp_path / "run")
    refused(outcome, *words)
    assert outcome.out == "" and not (tmp_path / "run").exists()


def test_places_and_horizons(holdfast, settings, tmp_path):
    (tmp_path / "list.yaml").write_text("- method\n- seed\n")
    out = ("--out", tmp_path / "r")
    for words, *message in (
        (["demo", *settings, "--out", tmp_path], "no trajectory"),
        (["demo", *settings, *out, "--tasks", 4], "4", "3"),
        (["demo", *settings, *out, "--tasks", 0, "--dry-run"], "0", "3"),
        (["demo", *settings], "--out"),
        (["domo", *out], "domo", "demo"),
        ([tmp_path / "no.yaml", *out], "no.yaml"),
        ([tmp_path / "list.yaml", *out], "list.yaml: must hold a mapping"),
        ([tmp_path, *out],),
    ):
        refused(holdfast("run", *words), *message)
    assert [path.name for path in tmp_path.iterdir()] == ["list.yaml"]
