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
        ("optim.lr=fast", ["optim.lr", "fast"]),
        ("lora.dropout=1.5", ["lora.dropout"]),
        ("lora.rank=100000", ["lora.rank"]),
        ("sampling.top_p=.nan", ["sampling.top_p"]),
        ("method=si_sdd", ["sdd", "sd"]),
        ("method=olora_merge", ["olora", "merge"]),
        ("method=si_si", ["twice"]),
        ("lr", ["KEY=VALUE"]),
        ("lora.targets=[nowhere]", ["nowhere", "all-linear"]),
        ("stream.name=symbol_qo", ["symbol_qo", "symbol_qa"]),
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
