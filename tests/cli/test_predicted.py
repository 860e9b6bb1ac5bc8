"""What a run would take is told from a configuration and a tokenizer: no weights are needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.backbone.load import load_tokenizer
from holdfast.cli.predicted import bytes_of

ARCHITECTURE = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
SAMPLES = ("sampling.samples=32", "sampling.max_new_tokens=48")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Qwen3-4B's shapes with a tokenizer: its weights are not there, nor needed."""
    load_tokenizer("embedded").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(ARCHITECTURE), "utf-8")
    return tmp_path


def test_a_large_model_from_its_configuration(holdfast: Any, large: Path) -> None:
    asked = ("--model", large, "--method", "kfac_merge", "--device", "cuda", "--json")
    outcome = holdfast("doctor", *asked, "curvature.exact_up_to=100000")
    assert outcome.status == 0, outcome.err
    said = json.loads(outcome.out)
    assert said["parameters"] == 4_022_468_096
    assert said["precision"] == "bfloat16"
    # S of 2560, 4096, 2560 and 9728; G of 4096, 1024, 1024, 2560, 9728, 9728 and 2560.
    wide = (2560, 4096, 2560, 9728, 4096, 2560, 9728, 9728, 2560)
    once = 4 * 36 * (sum(width**2 for width in wide) + 2 * 1024**2)
    assert said["memory"]["training"]["S and G"] == once
    assert said["memory"]["boundary"]["new S and G"] == 2 * once
    # Masters of the adapted matrices, float32.
    dense = 36 * (2560 * (4096 + 2 * 1024 + 3 * 9728) + 4096 * 2560)
    assert said["memory"]["training"]["float32 matrices"] == 4 * dense
    assert said["time"] is None  # that GPU is not here


def test_it_is_told_what_fits_and_what_cannot_be_said(holdfast: Any, large: Path) -> None:
    asked = ("doctor", "--model", large, "--device", "cuda", "--method", "merge")
    outcome = holdfast(*asked, "--memory", "4GiB")
    assert outcome.status == 0, outcome.err
    assert "merge, 100 tasks of 100 items of symbol_qa" in outcome.out
    assert "NO, not into 4.0 GiB" in outcome.out
    assert "yes, into 640 GiB" in (out := holdfast(*asked, "--memory", "640GiB").out)
    assert "not said: no cuda is here, and seconds are measured, not modelled" in out


def test_a_run_of_the_embedded_model(holdfast: Any) -> None:
    """Every phase, measured here, and the method's settings change what is said."""
    outcome = holdfast("doctor", "demo", "stream.tasks=5", "--method", "vanilla")
    assert outcome.status == 0, outcome.err
    lines = {line[:16].strip(): line[16:] for line in outcome.out.splitlines()}
    assert lines["run"].startswith("vanilla, 5 tasks of")
    assert lines["model"].startswith("embedded: 3 M parameters in float32")
    assert "sampling" not in lines
    for what in ("training", "evaluation", "needed", "fits", "whole stream", "disk"):
        assert lines[what]
    assert "keys and values" in holdfast("doctor", "demo", *SAMPLES, "--method", "replay_merge").out


def test_a_model_of_another_kind(holdfast: Any, tmp_path: Path) -> None:
    """GPT-2's maps have other names and are stored the other way round."""
    load_tokenizer("embedded").save_pretrained(tmp_path)
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    asked = ("--model", tmp_path, "--method", "merge", "lora.targets=all-linear", "--json")
    said = json.loads(holdfast("doctor", *asked).out)
    assert said["parameters"] == 124_439_808
    # Two maps of a layer are named c_proj: after attention, and after the MLP.
    widths = ((768, 3 * 768), (768, 768), (768, 3072), (3072, 768))
    assert said["trainable"] == 12 * 32 * sum(map(sum, widths))


def test_a_model_that_is_not_there(holdfast: Any) -> None:
    outcome = holdfast("doctor", "--model", "nowhere/to-be-found")
    assert outcome.status == 2
    assert "no causal language model could be loaded" in outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "sleep"), '"sleep" is no mechanism'),
        (("--memory", "much", "demo"), "--memory much: is no size"),
        (("--device", "abacus", "demo"), "--device abacus: is not predicted; use cpu or cuda"),
        (("--memory", "1GiB"), "--memory is for a prediction; name what to predict"),
        (("--json",), "--json is for a prediction"),
        (("dmeo",), "neither a recipe nor a YAML file"),
        (("demo", "optim.lrr=1"), "unknown key optim.lrr"),
        (("demo", "lora.targets=[nothing]"), "no linear map of this backbone is named nothing"),
        (("demo", "lora.rank=9999"), "lora.rank = 9999 exceeds"),
    ],
)
def test_what_a_run_would_refuse_is_refused(
    holdfast: Any, words: tuple[str, ...], said: str
) -> None:
    outcome = holdfast("doctor", *words)
    assert outcome.status == 2, outcome.out
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GiB", 24 * 2**30), ("80gb", 80e9), ("1.5", 1.5 * 2**30), ("8 MiB", 2**23)],
)
def test_sizes(text: str, size: float) -> None:
    assert bytes_of(text) == size
