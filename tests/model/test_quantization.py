"""Maps that bitsandbytes stores in 8 or 4 bits: learned beside, never merged into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from holdfast import HoldfastError, RunConfig, Trajectory
from holdfast.exports.export import export
from holdfast.model import hardware, load
from holdfast.model.backbone import Backbone
from holdfast.model.hardware import check_available
from tests.exports.exported import configured, facts, family, saved

KINDS = ("int8", "nf4")


def settings(tmp_path: Path, kind: str, method: str, **sections: Any) -> RunConfig:
    base = tmp_path / "base"
    if not base.exists():
        saved(base, family("qwen3"))
    return configured(
        base, facts(tmp_path), method, backbone={"quantization": kind}, optim={"epochs": 2},
        **sections,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_continued_to_the_bit(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    method = "si_sd_replay"
    Trajectory(settings(tmp_path, kind, method), tmp_path / "whole").advance(2)
    for horizon in (1, 2):
        Trajectory(settings(tmp_path, kind, method), tmp_path / "parts").advance(horizon)
    whole, parts = (
        load_file(tmp_path / place / "factors" / "task-0002.safetensors")
        for place in ("whole", "parts")
    )
    assert all(whole[key].equal(parts[key]) and whole[key].any() for key in whole)


def test_four_bits_keep_their_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On processors with AVX512-BF16 too, where the library would pack them after a first pass."""
    modules = pytest.importorskip("bitsandbytes.nn.modules")
    monkeypatch.setattr(modules, "has_avx512bf16", lambda: True)
    base = tmp_path / "base"
    saved(base, family("qwen3"))
    model = load.load_backbone(Backbone.Config(name=str(base), quantization="nf4")).model
    quantized = [module for module in model.modules() if isinstance(module, modules.Linear4bit)]
    assert quantized and not any(module.support_avx512bf16_for_cpu for module in quantized)
    ids = torch.tensor([[5, 6, 7]])
    gradients = []
    for _ in range(2):
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
        model.eval()(inputs_embeds=embedded).logits.sum().backward()
        gradients.append(embedded.grad)
        with torch.no_grad():
            model(ids)
    assert gradients[0].any() and torch.equal(*gradients)


def test_a_rule_that_merges_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="quantization = nf4: merge adds to the matrices"):
        settings(tmp_path, "nf4", "merge")


def test_an_export_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    Trajectory(settings(tmp_path, "int8", "vanilla"), tmp_path / "run").advance(1)
    for to in ("peft", "hf"):
        with pytest.raises(HoldfastError, match="was learned on a base in int8"):
            export(tmp_path / "run", to, tmp_path / "exported")


def test_without_the_package_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "find_spec", lambda _: None)
    for kind in KINDS:
        with pytest.raises(HoldfastError, match=r"holdfast\[quantization\]"):
            check_available(Backbone.Config(quantization=kind))


def test_it_is_part_of_the_identity(tmp_path: Path) -> None:
    numbers = [settings(tmp_path, kind, "vanilla").numbers() for kind in ("none", *KINDS)]
    assert [number["quantization"] for number in numbers] == ["none", *KINDS]
