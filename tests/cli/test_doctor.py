"""The doctor names what is missing, and what a run would take, without its weights."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest
from packaging.specifiers import SpecifierSet

from holdfast.cli import doctor as verb
from holdfast.core import plugins
from holdfast.core.errors import HoldfastError
from holdfast.model.load import load_tokenizer
from holdfast.model.sources.cache import write_manifest
from tests.cli.conftest import refused

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
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}


@pytest.fixture
def requirements(monkeypatch):
    """Let holdfast require other things than it does."""

    def arrange(*texts: str) -> None:
        monkeypatch.setattr(verb, "requires", lambda name: list(texts))

    return arrange


@pytest.fixture
def model(tmp_path):
    """The directory of a model of which there are a configuration and a tokenizer, no weights."""

    def write(config):
        load_tokenizer("embedded").save_pretrained(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
        return tmp_path

    return write


def test_what_is_required_and_what_is_extra_comes_from_the_metadata(requirements):
    requirements(
        "torch>=2.11",
        "nothing>=1; sys_platform == 'no such system'",
        "peft>=0.18; extra == 'peft'",
        "holdfast[peft]; extra == 'dev'",
        "ruff>=0.14; extra == 'dev'",
        "rough; sys_platform == 'no such system' and extra == 'dev'",
    )
    required, extras = verb._requirements()
    assert [(need.name, need.specifier) for need in required] == [("torch", SpecifierSet(">=2.11"))]
    named = {extra: [need.name for need in members] for extra, members in extras.items()}
    assert named == {"peft": ["peft"], "dev": ["ruff"]}


def test_a_healthy_machine_and_what_others_add(holdfast, monkeypatch, tmp_path):
    """A plug-in that cannot be loaded is told, and harms nothing else."""
    home, group = "holdfast.anchors.sd:SelfDistillation", plugins.ANCHOR_GROUP
    entries = [EntryPoint("copy", home, group), EntryPoint("gone", "no_package:Gone", group)]
    monkeypatch.setattr(plugins, "installed", lambda asked: entries if asked == group else [])
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    monkeypatch.setattr("holdfast.model.hardware.bfloat16_time", lambda: 0.512)
    outcome = holdfast("doctor")
    assert outcome.status == 0, outcome.err
    lines = {line.split()[0]: line[17:] for line in outcome.out.splitlines()}
    for name in ("holdfast", "torch", "[quantization]", "processor", "attention", "generation"):
        assert lines[name]
    assert "M parameters" in lines["embedded"]
    assert lines["copy"] == f"holdfast.anchors, {home}"
    assert "BROKEN: entry point holdfast.anchors:gone of no_package:Gone cannot" in lines["gone"]
    assert lines["bfloat16"].startswith("products take 0.51 of float32's time on this processor")
    missing = "not here; holdfast fetch smollm2 (SmolLM2-135M-Instruct, 93 MB, Apache-2.0)"
    assert lines["smollm2"] == missing


def test_whether_the_small_chat_model_is_here(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    place = tmp_path / "models" / "smollm2"
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    write_manifest(place)
    verb._print_models()
    assert f"smollm2          {place}" in capsys.readouterr().out.splitlines()
    (place / "holdfast.json").write_text('{"format": 99, "files": {}}')
    verb._print_models()
    assert f"BROKEN: {place}: is of format 99" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("no-such-package>=1.5", 1, "MISSING; pip install 'no-such-package>=1.5'"),
        ("numpy>=999", 1, "is too old or too new; pip install 'numpy>=999'"),
        ("no-such-package>=1; extra == 'shiny'", 0, "[shiny]        incomplete, and optional; "
         "pip install 'no-such-package>=1'"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_and_fails_if_it_is_required(
    text, status, message, requirements, holdfast
):
    requirements("pydantic", text)
    outcome = holdfast("doctor")
    assert outcome.status == status
    assert message in outcome.out


def test_a_broken_embedded_backbone_fails(monkeypatch, holdfast):
    def broken() -> None:
        raise HoldfastError("the weights are gone")

    monkeypatch.setattr("holdfast.model.load.load_backbone", broken)
    outcome = holdfast("doctor")
    assert outcome.status == 1
    assert "BROKEN: the weights are gone" in outcome.out


def test_a_large_model_from_its_configuration(holdfast, model):
    asked = ("--model", model(ARCHITECTURE), "--method", "kfac_merge", "--device", "cuda", "--json")
    outcome = holdfast("doctor", *asked, "curvature.exact_up_to=100000", "--memory", "4GiB")
    assert outcome.status == 0, outcome.err
    report = json.loads(outcome.out)
    assert report["parameters"] == 4_022_468_096
    assert report["precision"] == "bfloat16"
    # S of 2560, 4096, 2560 and 9728; G of 4096, 1024, 1024, 2560, 9728, 9728 and 2560.
    wide = (2560, 4096, 2560, 9728, 4096, 2560, 9728, 9728, 2560)
    once = 4 * 36 * (sum(width**2 for width in wide) + 2 * 1024**2)
    assert report["memory"]["training"]["S and G"] == once
    assert report["memory"]["boundary"]["new S and G"] == 2 * once
    # Masters of the adapted matrices, float32.
    dense = 36 * (2560 * (4096 + 2 * 1024 + 3 * 9728) + 4096 * 2560)
    assert report["memory"]["training"]["float32 matrices"] == 4 * dense
    assert (report["fits"], report["available"], report["time"]) == (False, 2**32, None)


def test_a_model_of_another_kind_that_fits_a_device_that_is_not_here(holdfast, model):
    """GPT-2's maps have other names and are stored the other way round."""
    asked = ("--model", model(GPT2), "--method", "merge", "lora.targets=all-linear")
    outcome = holdfast("doctor", *asked, "--device", "cuda", "--memory", "640GiB")
    assert "merge, 100 tasks of 100 items of symbol_qa" in outcome.out
    # Two maps of a layer are named c_proj: after attention, and after the MLP.
    widths = ((768, 3 * 768), (768, 768), (768, 3072), (3072, 768))
    trainable = 12 * 32 * sum(map(sum, widths)) / 1e6
    assert f": 124 M parameters in bfloat16, {trainable:.1f} M trainable" in outcome.out
    assert "yes, into 640 GiB" in outcome.out
    assert "not said: no cuda is here, and seconds are measured, not modelled" in outcome.out


def test_a_run_of_the_embedded_model(holdfast):
    """Every phase, measured here."""
    outcome = holdfast("doctor", "demo", "stream.tasks=5", "--method", "vanilla")
    assert outcome.status == 0, outcome.err
    lines = {line[:17].strip(): line[17:] for line in outcome.out.splitlines()}
    assert lines["run"].startswith("vanilla, 5 tasks of")
    assert lines["model"].startswith("embedded: 3 M parameters in float32")
    assert "sampling" not in lines
    for name in ("training", "evaluation", "needed", "fits", "whole stream", "disk"):
        assert lines[name]


def test_attention_is_that_of_the_run(holdfast):
    """On a CPU in bfloat16 it is plain, unless the configuration says otherwise."""

    def memory(attention):
        settings = ("backbone.precision=bfloat16", f"backbone.attention={attention}")
        words = ("demo", *settings, "--method", "vanilla", "--memory", "8MiB", "--device", "cpu")
        return json.loads(holdfast("doctor", *words, "--json").out)["memory"]

    assert memory("auto") == memory("eager") != memory("sdpa")


def test_the_advice_is_for_the_largest_phase(holdfast):
    asked = ("demo", "stream.tasks=5", "--method", "vanilla", "--memory", "8MiB")
    assert "try a smaller evaluation.tokens_in_cache" in holdfast("doctor", *asked).out
    small = ("evaluation.tokens_in_cache=1", "evaluation.tokens_per_batch=1")
    assert "try backbone.checkpointing=true" in holdfast("doctor", *asked, *small).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "nowhere/to-be-found"), "no causal language model could be loaded"),
        (("--method", "sleep"), '"sleep" is no mechanism'),
        (("--memory", "much", "demo"), "--memory much: is no size"),
        (("--device", "abacus", "demo"), "--device abacus: is not predicted; use cpu or cuda"),
        (("--memory", "1GiB"), "--memory is for a prediction; name what to predict"),
        (("dmeo",), "neither a recipe nor a YAML file"),
        (("demo", "lora.targets=[nothing]"), "no linear map of this backbone is named nothing"),
    ],
)
def test_what_a_run_would_refuse_is_refused(holdfast, words, message):
    refused(holdfast("doctor", *words), message)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 * 2**30),
        ("80gb", 80e9),
        ("1.5", 1.5 * 2**30),
        ("8 MiB", 2**23),
        ("1TB", 10**12),
        ("2t", 2**41),
        ("24000M", 24000 * 2**20),
    ],
)
def test_sizes(text, size):
    assert verb.bytes_of(text) == size


@pytest.mark.parametrize("text", ["9" * 400, "9" * 300 + "TiB", "0 EiB", "-1", ""])
def test_no_sizes(text):
    with pytest.raises(HoldfastError, match="is no size; write for example 24GiB"):
        verb.bytes_of(text)
