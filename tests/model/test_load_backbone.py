"""Loading a backbone, and what is refused in one line."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import normalizers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    XLNetConfig,
    XLNetLMHeadModel,
)
from transformers.utils import logging as transformers_logging

from holdfast import RunConfig, Trajectory
from holdfast.core import processes
from holdfast.core.errors import HoldfastError
from holdfast.model import hardware
from holdfast.model.backbone import Backbone
from holdfast.model.load import load_backbone, load_shape, load_tokenizer
from tests.refused import line_of
from tests.tiny import byte_tokenizer, drawn, save_tiny_mixture, tiny_llama


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    tiny_llama().save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def test_a_deterministic_backbone_asks_torch_for_it(saved, monkeypatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    try:
        load(saved)
        assert not torch.are_deterministic_algorithms_enabled()
        load(saved, deterministic=True)
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def load(name: Any, **settings: Any) -> Backbone:
    return load_backbone(Backbone.Config(name=str(name), **{"device": "cpu", **settings}))


@pytest.mark.parametrize("precision", ["auto", "float32", "bfloat16", "float64"])
def test_a_saved_model_comes_back(saved: Path, precision: Any) -> None:
    backbone = load(saved, precision=precision)
    expected = torch.float32 if precision == "auto" else getattr(torch, precision)
    assert backbone.dtype == expected
    attention = "eager" if precision == "bfloat16" else "sdpa"
    plain = LlamaForCausalLM.from_pretrained(saved, dtype=expected, attn_implementation=attention)
    ids = torch.tensor([[4, 8, 15]])
    with torch.no_grad():
        assert torch.equal(backbone.logits(backbone.hidden(ids)), plain(input_ids=ids).logits)
    assert backbone.model.config._attn_implementation == attention
    assert backbone.eos_token == backbone.pad_token == 0
    assert backbone.stop_tokens == {0}
    assert not any(parameter.requires_grad for parameter in backbone.model.parameters())
    assert not backbone.model.training
    assert transformers_logging.is_progress_bar_enabled()  # for what the caller loads itself


def test_the_fingerprint_knows_what_decides_an_answer(saved: Path) -> None:
    plain = load(saved).fingerprint
    assert load(saved).fingerprint == plain == Backbone(tiny_llama(), byte_tokenizer()).fingerprint
    assert Backbone(tiny_llama(seed=1), byte_tokenizer()).fingerprint != plain
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["more"])
    wider = tiny_llama()
    wider.resize_token_embeddings(258, mean_resizing=False)
    assert Backbone(wider, tokenizer).fingerprint != plain
    for change in (
        {"rms_norm_eps": 0.5},
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}},
    ):
        other = tiny_llama()
        for name, value in change.items():
            setattr(other.config, name, value)
        assert Backbone(other, byte_tokenizer()).fingerprint != plain
    longer = tiny_llama()
    longer.generation_config.eos_token_id = [3, 9]
    assert Backbone(longer, byte_tokenizer()).fingerprint != plain
    lower = byte_tokenizer()
    lower.backend_tokenizer.normalizer = normalizers.Lowercase()
    assert Backbone(tiny_llama(), lower).fingerprint != plain
    nudged = tiny_llama()
    nudged.model.layers[1].mlp.down_proj.weight.data[3, 4] += 1e-3
    assert Backbone(nudged, byte_tokenizer()).fingerprint != plain


refused = partial(line_of, load)


def test_a_tokenizer_of_another_model_is_refused() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["more"])
    with pytest.raises(HoldfastError, match="tokenizer has token 257, and its embedding 257 rows"):
        Backbone(tiny_llama(), tokenizer)


def test_a_directory_without_a_tokenizer(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path)
    assert refused(tmp_path).startswith(f"{tmp_path}: holds no tokenizer")


def test_a_text_that_is_too_long_is_the_templates_to_refuse(caplog, monkeypatch) -> None:
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    tokenizer = load_tokenizer("embedded")
    assert len(tokenizer("word " * 4000)["input_ids"]) > tokenizer.model_max_length
    assert not caplog.records


def test_an_unknown_name() -> None:
    assert refused("nobody/nothing-of-the-kind").startswith(
        "backbone.name = nobody/nothing-of-the-kind: no causal language model could be loaded"
    )


# Refuses every connection at once, as a machine without a network does.
UNREACHABLE = {
    "HF_HUB_OFFLINE": "0",
    "HF_ENDPOINT": "http://127.0.0.1:9",
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), ""),
}
LOADING = """
import sys, time
from huggingface_hub import is_offline_mode
from holdfast.model.load import load_tokenizer
from holdfast.core.errors import HoldfastError
for name in sys.argv[1:]:
    began = time.monotonic()
    try:
        print(len(load_tokenizer(name)))
    except HoldfastError as error:
        print(error)
    assert time.monotonic() - began < 10
    assert not is_offline_mode()
"""


def test_a_hub_out_of_reach_is_soon_said_and_leaves_its_cache(saved: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    cached = home / "hub" / "models--nobody--something"
    revision = "0123456789" * 4
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(revision)
    shutil.copytree(saved, cached / "snapshots" / revision, ignore=shutil.ignore_patterns("home"))
    # In a process of its own: whether there is a hub at all is settled when its library is loaded.
    done = subprocess.run(
        [sys.executable, "-c", LOADING, "nobody/nothing", "nobody/something"],
        capture_output=True,
        text=True,
        env=os.environ | UNREACHABLE | {"HF_HOME": str(home)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "backbone.name = nobody/nothing: no causal language model could be loaded (no directory, "
        'nor in the hub\'s cache, and the hub does not answer); use "embedded", a hub name or a '
        "directory written by save_pretrained",
        str(len(byte_tokenizer())),
    ]


def test_a_damaged_model(saved: Path) -> None:
    weights = saved / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    assert refused(saved).startswith(f"{weights}: is damaged (")
    weights.write_bytes(whole)
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"num_attention_heads": 3}))
    assert "not a multiple of the number of attention heads (3)" in refused(saved)


def test_a_masked_language_model(saved: Path) -> None:
    """Refused before a prediction makes up weights: a pass ended in an error of ours."""
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    line = f"{saved}: is a BertForMaskedLM, which is no causal language model"
    assert refused(saved) == line_of(load_shape, str(saved)) == line


def test_a_device_that_is_not_there(saved: Path) -> None:
    assert refused(saved, device="cuda:77").startswith("backbone.device = cuda:77")
    assert refused(saved, device="quantum").startswith("backbone.device = quantum")


def test_processes_that_share_a_run_have_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs are pretended: what is checked is which one a process takes."""

    def device(name: str, place: int | None) -> torch.device:
        # On the second of two machines with two processes each.
        group = None if place is None else processes._Group(2 + place, 4, None)
        monkeypatch.setattr(processes, "_group", group)
        monkeypatch.setenv("LOCAL_RANK", str(place))
        return hardware.device_of(Backbone.Config(device=name))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    assert device("auto", None) == device("cuda", None) == torch.device("cuda")
    assert device("cuda:1", None) == torch.device("cuda", 1)
    assert [device("auto", place) for place in (0, 1)] == [torch.device("cuda", n) for n in (0, 1)]
    assert device("cuda", 1) == torch.device("cuda", 1)
    assert device("cpu", 1) == torch.device("cpu")
    with pytest.raises(HoldfastError, match="process 3 of this machine finds no GPU of its own"):
        device("auto", 2)
    with pytest.raises(HoldfastError, match="cuda:1: one GPU, for"):
        device("cuda:1", 0)


@pytest.mark.parametrize(("cap", "right"), [(0.5, False), (None, True)])
def test_a_soft_capped_head(cap: float | None, right: bool) -> None:
    config = Gemma2Config(
        vocab_size=257,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=cap,
        initializer_range=0.3,
    )
    model = drawn(Gemma2ForCausalLM, config)
    if right:
        assert Backbone(model, byte_tokenizer()).pad_token == 0
        return
    with pytest.raises(HoldfastError, match="soft-capping"):
        Backbone(model, byte_tokenizer())


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapter_is_no_backbone(saved: Path, tmp_path: Path) -> None:
    """transformers loads its base and puts its maps there, beside which ours would train."""
    adapted = get_peft_model(
        LlamaForCausalLM.from_pretrained(saved), LoraConfig(r=2, init_lora_weights=False)
    )
    adapter = tmp_path / "adapter"
    adapted.save_pretrained(adapter)
    byte_tokenizer().save_pretrained(adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = str(saved)
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    assert "is an adapter, not a model; merge it" in refused(adapter)
    (adapter / "adapter_model.safetensors").unlink()
    (adapter / "adapter_model.bin").write_bytes(b"no pickle")
    assert "is an adapter, not a model; merge it" in refused(adapter)
    whole = adapted.merge_and_unload()
    whole.save_pretrained(tmp_path / "whole")
    byte_tokenizer().save_pretrained(tmp_path / "whole")
    assert load(tmp_path / "whole").fingerprint != load(saved).fingerprint


def test_a_model_whose_files_lack_weights_is_refused(saved: Path, tmp_path: Path) -> None:
    """transformers would draw them at random, others in every process."""
    settings = tiny_llama().config
    settings.tie_word_embeddings = False
    LlamaForSequenceClassification(settings).save_pretrained(tmp_path / "judge")
    byte_tokenizer().save_pretrained(tmp_path / "judge")
    kind = (tmp_path / "judge" / "config.json").read_text()
    kind = kind.replace("SequenceClassification", "CausalLM")
    (tmp_path / "judge" / "config.json").write_text(kind)
    assert "its files lack lm_head.weight (1 in all)" in refused(tmp_path / "judge")
    config = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    assert "its files lack model.layers.2." in refused(saved)
    (saved / "config.json").write_text(json.dumps(config | {"intermediate_size": 24}))
    assert "down_proj.weight has the shape (16, 32) in its files and (16, 24)" in refused(saved)


def test_a_mixture_of_experts_is_computed_in_float64(tmp_path: Path) -> None:
    save_tiny_mixture(tmp_path)
    config = Backbone.Config(name=str(tmp_path), precision="float64", device="cpu")
    exact, plain = load_backbone(config), load(tmp_path)
    ids = torch.tensor([[5, 9, 2, 30, 7]])
    with torch.no_grad():
        ours, theirs = (backbone.logits(backbone.hidden(ids)) for backbone in (exact, plain))
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=1e-3, atol=1e-4)


def test_a_model_that_looks_ahead_is_refused() -> None:
    sizes = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, "initializer_range": 0.5}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = XLNetLMHeadModel(XLNetConfig(vocab_size=257, **sizes))
    with pytest.raises(HoldfastError, match="depends on the tokens behind it"):
        Backbone(model, byte_tokenizer())


def test_weights_that_can_hold_code_are_not_read(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    (saved / "pytorch_model.bin").write_bytes(b"no pickle")
    assert "holds no model.safetensors, and .bin files, which can hold code" in refused(saved)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(name: str, saved: Path) -> None:
    (saved / name).unlink()
    os.mkfifo(saved / name)
    assert f"{saved / name}: is no regular file" in refused(saved)


@pytest.mark.parametrize(("time", "fastest"), [(0.5, "bfloat16"), (1.2, "float32"), (9, "float32")])
def test_the_fastest_is_chosen_by_a_probe(time, fastest, monkeypatch) -> None:
    monkeypatch.setattr(hardware, "bfloat16_time", lambda: time)
    for given, wanted in (("fastest", fastest), ("auto", "float32"), ("bfloat16", "bfloat16")):
        config = Backbone.Config(precision=given, device="cpu")  # type: ignore[arg-type]
        assert hardware.resolved_precision(config) == wanted


@pytest.mark.parametrize(
    ("given", "precision", "device", "wanted"),
    [
        ("auto", "bfloat16", "cpu", "eager"),
        ("auto", "float32", "cpu", "auto"),
        ("auto", "bfloat16", "cuda", "auto"),
        ("sdpa", "bfloat16", "cpu", "sdpa"),
    ],
)
def test_attention_is_plain_on_a_cpu_in_half_precision(given, precision, device, wanted) -> None:
    config = Backbone.Config(attention=given)
    assert hardware.resolved_attention(config, precision, device) == wanted


def test_the_probe_times_both_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test's own: a product in bfloat16 takes three times as long."""
    now, clock = [0.0], torch.nn.functional.linear

    def product(states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        now[0] += 3.0 if states.dtype == torch.bfloat16 else 1.0
        return clock(states, weight)

    monkeypatch.setattr(torch.nn.functional, "linear", product)
    monkeypatch.setattr(hardware.time, "perf_counter", lambda: now[0])
    hardware.bfloat16_time.cache_clear()
    assert hardware.bfloat16_time() == 3.0
    hardware.bfloat16_time.cache_clear()


def test_a_run_goes_on_in_the_precision_that_it_began_in(
    backbone_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the probe finds later."""
    backbone = {"name": str(backbone_directory), "precision": "fastest"}
    stream, lora = {"tasks": 2, "items_per_task": 2}, {"rank": 2}
    values = {"backbone": backbone, "stream": stream, "lora": lora, "optim": {"epochs": 1}}
    config = RunConfig.of(values, ["evaluation.max_new_tokens=14"])
    for time, tasks in ((9.0, 1), (0.5, 2)):
        monkeypatch.setattr(hardware, "bfloat16_time", lambda time=time: time)
        trajectory = Trajectory(config, tmp_path / "run")
        trajectory.advance(tasks)
        assert trajectory.config.backbone.precision == "float32"
