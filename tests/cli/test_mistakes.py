"""Every mistake that a user can make: one line that says what, where and what to do; exit 2."""

from __future__ import annotations

import json
import shutil

import pytest

GOOD = {"question": "where is the lamp?", "answer": "on the pier"}


def refused(outcome, *words: str) -> None:
    assert outcome.status == 2, (outcome.status, outcome.err)
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    assert len(lines) == 1, outcome.err
    for word in words:
        assert word in lines[0], lines[0]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ["facts.jsonl", "empty"]),
        (["{oops"], ["facts.jsonl", "line 1"]),
        ([json.dumps({"question": "who?"})], ["line 1", "answer"]),
        ([json.dumps({"question": "who?", "answer": " "})], ["line 1", "answer"]),
        ([json.dumps(GOOD), json.dumps({**GOOD, "answer": "at sea"})], ["line 2", "two answers"]),
        ([json.dumps({**GOOD, "answer": "a}b"})], ["line 1", "braces"]),
    ],
)
def test_bad_facts(lines, words, holdfast, settings, tmp_path):
    path = tmp_path / "facts.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    given = [*(s for s in settings if not s.startswith("stream")), f"stream.name={path}"]
    refused(holdfast("run", "demo", *given, "--out", tmp_path / "run"), *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("optim.ls=1", ["optim.ls", "optim.lr"]),
        ("optum.lr=1", ["optum", "optim"]),
        ("optim.lr=-1", ["optim.lr", "-1"]),
        ("optim.lr=fast", ["optim.lr", "fast"]),
        ("optim.epochs=0", ["optim.epochs"]),
        ("lora.dropout=1.5", ["lora.dropout"]),
        ("lora.rank=100000", ["lora.rank"]),
        ("replay.weight=2", ["replay.weight"]),
        ("sampling.top_p=.nan", ["sampling.top_p"]),
        ("method=si_sdd", ["sdd", "sd"]),
        ("method=olora_merge", ["olora", "merge"]),
        ("method=si_si", ["twice"]),
        ("lr", ["KEY=VALUE"]),
        ("lora.targets=[nowhere]", ["nowhere", "all-linear"]),
        ("template.max_length=10", ["max_length", "cut"]),
        ("stream.name=symbol_qo", ["symbol_qo", "symbol_qa"]),
        ("backbone.name=/no/such/model", ["backbone.name"]),
        ("backbone.device=cuda:99", ["cuda:99"]),
    ],
)
def test_bad_settings(setting, words, holdfast, settings, tmp_path):
    refused(holdfast("run", "demo", *settings, setting, "--out", tmp_path / "run"), *words)


def test_a_model_without_a_tokenizer(holdfast, settings, tiny_directory, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(tiny_directory, bare)
    for path in bare.glob("*token*"):
        path.unlink()
    outcome = holdfast("run", "demo", *settings, f"backbone.name={bare}", "--out", tmp_path / "run")
    refused(outcome, "bare", "tokenizer")


def test_places_and_horizons(holdfast, settings, tmp_path):
    (tmp_path / "file").write_text("mine")
    refused(holdfast("run", "demo", *settings, "--out", tmp_path / "file"), "file")
    refused(holdfast("run", "demo", *settings, "--out", tmp_path / "file" / "below"), "below")
    refused(holdfast("run", "demo", *settings, "--out", tmp_path), "no trajectory")
    assert (tmp_path / "file").read_text() == "mine"
    for horizon in (0, -2, 4):
        outcome = holdfast("run", "demo", *settings, "--out", tmp_path / "r", "--tasks", horizon)
        refused(outcome, str(horizon), "3")
    refused(holdfast("run", "demo", *settings), "--out")
    refused(holdfast("run", "domo", "--out", tmp_path / "r"), "domo", "demo")
    refused(holdfast("run", tmp_path / "no.yaml", "--out", tmp_path / "r"), "no.yaml")


def test_another_configuration_in_the_same_place(holdfast, settings, tmp_path):
    place = tmp_path / "run"
    assert holdfast("run", "demo", *settings, "--out", place, "--tasks", 1).status == 0
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    outcome = holdfast("run", "demo", *settings, "seed=7", "optim.lr=0.5", "--out", place)
    refused(outcome, "seed: 41 -> 7", "optim.lr: 0.002 -> 0.5")
    refused(holdfast("run", "demo", *settings, "stream.seed=1", "--out", place), "task 1")
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_our_own_fault_is_exit_1_and_debug_shows_it(holdfast, settings, tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("a wire came loose")

    monkeypatch.setattr("holdfast.learning.trajectory.learn_task", broken)
    outcome = holdfast("run", "demo", *settings, "--out", tmp_path / "run")
    assert (outcome.status, "our fault" in outcome.err) == (1, True)
    assert "Traceback" not in outcome.err
    assert "Traceback" in holdfast("--debug", "run", "demo", *settings, "--out", tmp_path / "r").err
