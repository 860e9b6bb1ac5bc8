"""Frozen matrices in 8 and 4 bits: the numbers of bitsandbytes, exact gradients, merges."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import bitsandbytes
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from holdfast import HoldfastError, RunConfig, Trajectory
from holdfast.backbone import load
from holdfast.backbone.adapters.frozen import QuantizedLinear, quantize, unquantize
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.load import check_available
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import collate
from holdfast.exports.export import export
from tests.exports.exported import configured, facts, family, saved
from tests.tiny import byte_tokenizer

CPU = torch.device("cpu")
KINDS = ("int8", "nf4")


def linear(d_out: int = 48, d_in: int = 64, *, bias: bool = True) -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Linear(d_in, d_out, bias=bias).requires_grad_(False)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


def test_nf4_computes_what_bitsandbytes_own_module_computes() -> None:
    plain = linear()
    theirs = bitsandbytes.nn.Linear4bit(64, 48, quant_type="nf4", compress_statistics=False)
    theirs.load_state_dict(plain.state_dict())
    theirs = theirs.to(CPU)
    x = drawn(5, 64)
    ours = QuantizedLinear(copy.deepcopy(plain), "nf4", CPU)
    assert torch.equal(ours.packed, theirs.weight.data)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-6, atol=1e-6)
    assert (ours(x) - plain(x)).abs().max() > 0.01


def test_int8_has_the_numbers_of_bitsandbytes() -> None:
    """Of its matrix; its product rounds the inputs to 8 bits too, which ours does not."""
    plain = linear()
    ours = QuantizedLinear(copy.deepcopy(plain), "int8", CPU)
    packed, largest, _ = bitsandbytes.functional.int8_vectorwise_quant(plain.weight)
    assert torch.equal(ours.packed, packed)
    torch.testing.assert_close(ours.scales, largest / 127, rtol=1e-6, atol=0)
    theirs = bitsandbytes.nn.Linear8bitLt(64, 48, has_fp16_weights=False)
    theirs.load_state_dict(plain.state_dict())
    x = drawn(5, 64)
    error = (theirs.to(CPU)(x) - ours(x)).abs().max()
    assert 0 < error < 0.02 * ours(x).abs().max()
    torch.testing.assert_close(ours(x), x @ ours.dense().t() + plain.bias)


def test_a_matrix_in_half_precision_is_rounded_once_each_way() -> None:
    """Its scales are those of float32, and so are the products that are rounded to bfloat16."""
    plain = linear(256, 128).bfloat16()
    narrow = QuantizedLinear(copy.deepcopy(plain), "int8", CPU)
    wide = QuantizedLinear(copy.deepcopy(plain).float(), "int8", CPU)
    assert torch.equal(narrow.packed, wide.packed) and torch.equal(narrow.scales, wide.scales)
    assert torch.equal(narrow.dense(), wide.dense().bfloat16())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["qwen2", "gpt2"])
@pytest.mark.parametrize("targets", ["all-linear", ("q_proj", "up_proj", "c_attn")])
def test_states_and_gradients_are_those_of_the_dense_matrices(
    name: str, kind: str, targets: Any
) -> None:
    """By autograd through plain maps that hold Q(W), of maps that are adapted and that are not."""
    model = family(name)
    found = []
    for way in ("quantized", "by modules", "dense", "not at all"):
        one = copy.deepcopy(model)
        if way != "not at all":
            quantize(one, kind, CPU)
        if way == "dense":
            unquantize(one)
        backbone = Backbone(one, byte_tokenizer())
        lora = Adapters.Config(rank=2, alpha=3, targets=targets)
        if way == "dense" and name == "qwen2":
            assert type(one.model.layers[0].mlp.down_proj) is nn.Linear
        backbone.adapt(lora)
        assert (backbone.decoder is None) == (name == "gpt2")
        if way != "quantized":
            backbone._decoder = None
        adapters = backbone.adapters
        with torch.no_grad():
            adapters.parameters.normal_(std=0.2, generator=torch.Generator().manual_seed(1))
        with backbone.learning():
            passed = backbone.forward_pass(collate([[5, 9, 2, 30, 7], [1, 40, 3]], CPU))
            loss = (passed.states[0] * drawn(*passed.states[0].shape)).sum()
            passed.backward((loss, adapters.gradient))
        found.append((passed.states[0].detach(), adapters.gradient))
    ours, modules, dense, other = found
    for mine in (ours, modules):
        for one, exact in zip(mine, dense, strict=True):
            torch.testing.assert_close(one, exact, rtol=1e-3, atol=1e-4 * float(exact.abs().max()))
    assert (other[0] - dense[0]).abs().max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_updates_that_the_rounding_would_swallow_add_up(kind: str) -> None:
    """The master takes them; without one a small update never leaves its step of rounding."""
    model = family("qwen3")
    plain = {name: one.weight.clone() for name, one in maps(model)}
    quantize(model, kind, CPU)
    before = {name: one.packed.clone() for name, one in quantized(model)}
    backbone = Backbone(model, byte_tokenizer())
    backbone.adapt(Adapters.Config(rank=1, alpha=1, targets="all-linear"))
    adapters = backbone.adapters
    adapters.fold()
    assert all(torch.equal(one.packed, before[name]) for name, one in bases(adapters))
    alone = {name: one.dense() for name, one in bases(adapters)}
    with torch.no_grad():
        for _ in range(64):
            for name, layer in adapters.layers.items():
                layer.down.fill_(1e-3)
                layer.up.fill_(1.0)
                alone[name] += 1e-3
                one = QuantizedLinear(holding(alone[name]), kind, CPU)
                alone[name] = one.dense()
            adapters.fold()
    gained, lost = [], []
    for name, one in bases(adapters):
        wanted = plain[name] + 64e-3
        torch.testing.assert_close(adapters.dense(name), wanted, rtol=1e-5, atol=1e-6)
        exact = QuantizedLinear(holding(adapters.dense(name)), kind, CPU)
        assert torch.equal(one.packed, exact.packed) and torch.equal(one.scales, exact.scales)
        gained.append((one.dense() - plain[name]).flatten())
        lost.append((alone[name] - plain[name]).flatten())
    assert abs(torch.cat(gained).mean() - 64e-3) < 10e-3
    assert torch.cat(lost).mean() < 32e-3


def maps(model: Any) -> list[tuple[str, Any]]:
    head = model.get_output_embeddings()
    named = model.named_modules()
    return [(name, one) for name, one in named if type(one) is nn.Linear and one is not head]


def quantized(model: Any) -> list[tuple[str, QuantizedLinear]]:
    return [(name, one) for name, one in model.named_modules() if isinstance(one, QuantizedLinear)]


def bases(adapters: Adapters) -> list[tuple[str, QuantizedLinear]]:
    return [(name, layer.base) for name, layer in adapters.layers.items()]


def holding(matrix: Tensor) -> nn.Linear:
    plain = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
    plain.weight = nn.Parameter(matrix.clone(), requires_grad=False)
    return plain


@pytest.mark.parametrize(("kind", "share"), [("int8", 0.29), ("nf4", 0.17)])
def test_it_takes_the_bits_that_it_says(kind: str, share: float) -> None:
    """Scales included: of rows of 64 here, as of blocks of 64."""
    one = QuantizedLinear(linear(bias=False), kind, CPU)
    bytes_ = sum(part.nbytes for part in one.state_dict().values())
    assert bytes_ <= share * 4 * 48 * 64


def settings(tmp_path: Path, kind: str, method: str, **sections: Any) -> RunConfig:
    base = tmp_path / "base"
    if not base.exists():
        saved(base, family(sections.pop("architecture", "qwen3")))
    sections.setdefault("keep", {"factors": False, "snapshot_every": 2})
    return configured(
        base, facts(tmp_path), method, backbone={"quantization": kind},
        optim={"epochs": 4}, sampling={"general": 2}, **sections,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "method"),
    [("nf4", "si_kfac_sd_replay_merge"), ("int8", "osrm"), ("nf4", "olora"), ("int8", "vanilla")],
)
def test_a_run_is_continued_to_the_bit_and_exported(kind: str, method: str, tmp_path: Path) -> None:
    """The export is compared with the run by itself: logits, and answers token by token."""
    whole = Trajectory(settings(tmp_path, kind, method), tmp_path / "whole")
    whole.advance(2)
    for horizon in (1, 2):
        parts = Trajectory(settings(tmp_path, kind, method), tmp_path / "parts")
        parts.advance(horizon)
    again = Trajectory(settings(tmp_path, kind, method), tmp_path / "parts")
    one, other = whole.learner().adapters, again.learner().adapters
    for name in one.layers:
        assert torch.equal(one.layers[name].base.dense(), other.layers[name].base.dense())
        assert torch.equal(one.dense(name), other.dense(name))
    files = [
        load_file(tmp_path / place / "factors" / "task-0002.safetensors")
        for place in ("whole", "parts")
    ]
    assert all(torch.equal(files[0][key], files[1][key]) for key in files[0])
    checked = export(tmp_path / "parts", "hf", tmp_path / "exported")
    assert checked is not None and checked.difference < 1e-5
    assert checked.same == checked.answers > 0


def test_an_adapter_of_the_dense_base_is_refused(tmp_path: Path) -> None:
    config = settings(tmp_path, "int8", "vanilla")
    Trajectory(config, tmp_path / "run").advance(1)
    with pytest.raises(HoldfastError, match=r"a base in int8, .*; use --to hf"):
        export(tmp_path / "run", "peft", tmp_path / "adapter")


def test_gpt2s_maps_are_exported_as_they_were(tmp_path: Path) -> None:
    config = settings(tmp_path, "nf4", "merge", architecture="gpt2")
    Trajectory(config, tmp_path / "run").advance(2)
    checked = export(tmp_path / "run", "hf", tmp_path / "exported")
    assert checked is not None and checked.difference < 1e-5


def test_what_does_not_go_together_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HoldfastError, match="merge_precision = model: nf4 would round away what"):
        settings(tmp_path, "nf4", "merge", lora={"merge_precision": "model"})
    settings(tmp_path, "nf4", "vanilla", lora={"merge_precision": "model"})
    monkeypatch.setattr(load, "find_spec", lambda _: None)
    check_available(Backbone.Config(quantization="int8"))
    with pytest.raises(HoldfastError, match=r'pip install "holdfast\[quantization\]", or use int8'):
        check_available(Backbone.Config(quantization="nf4"))


def test_it_is_part_of_the_identity(tmp_path: Path) -> None:
    numbers = [settings(tmp_path, kind, "merge").numbers() for kind in ("none", *KINDS)]
    assert "quantization" not in numbers[0]
    assert [one["quantization"] for one in numbers[1:]] == list(KINDS)


def test_originals_are_kept_for_merges_alone() -> None:
    for folds, kept in ((True, True), (False, False)):
        model = family("qwen3")
        quantize(model, "int8", CPU)
        adapters = Adapters(
            model, Adapters.Config(rank=1), model.get_output_embeddings(), folds=folds
        )
        assert bool(adapters._masters) == kept
        assert all(one.original is None for _, one in quantized(model))
