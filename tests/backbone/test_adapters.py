"""The adapted maps against PEFT, and the one vector that holds them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from holdfast.backbone.adapters.workspace import PAPER_TARGETS, Adapters
from holdfast.backbone.model import Backbone
from holdfast.core.errors import HoldfastError
from tests.tiny import exact_backbone, exact_gpt2, tiny_llama

RANK, ALPHA = 3, 7.5
IDS = torch.tensor([[5, 9, 2, 30, 7], [1, 1, 40, 3, 8]])
FAMILIES: dict[str, tuple[Callable[[], Backbone], tuple[str, ...]]] = {
    "linear": (exact_backbone, PAPER_TARGETS),
    "conv1d": (exact_gpt2, ("c_attn", "c_proj", "c_fc")),
}


def adapters_on(backbone: Backbone, targets: Any, **settings: Any) -> Adapters:
    config = Adapters.Config(rank=RANK, alpha=ALPHA, dropout=0.0, targets=targets, **settings)
    return Adapters(backbone.model, config, backbone.head)


def random_factors(adapters: Adapters, seed: int = 0, std: float = 0.2) -> None:
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        adapters.parameters.normal_(std=std, generator=source)


def peft_twin(family: str, adapters: Adapters) -> Any:
    """PEFT's model with the same weights and factors."""
    build, targets = FAMILIES[family]
    config = LoraConfig(
        r=RANK,
        lora_alpha=ALPHA,  # type: ignore[arg-type]
        lora_dropout=0.0,
        target_modules=list(targets),
        fan_in_fan_out=family == "conv1d",
    )
    with warnings.catch_warnings():
        # PEFT 0.21 still reads an attribute that transformers 5.23 renamed.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        model = get_peft_model(build().model, config)
    with torch.no_grad():
        for name, (down, up) in adapters.split(adapters.parameters).items():
            layer = peft_layers(model)[name]
            layer.lora_A["default"].weight.copy_(down)
            layer.lora_B["default"].weight.copy_(up)
    return model.eval()


def peft_layers(model: Any) -> dict[str, Any]:
    modules = model.base_model.model.named_modules()
    return {name: module for name, module in modules if isinstance(module, LoraLayer)}


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.fixture(params=FAMILIES)
def pair(request: pytest.FixtureRequest) -> tuple[Backbone, Adapters, Any]:
    build, targets = FAMILIES[request.param]
    backbone = build()
    adapters = adapters_on(backbone, targets)
    random_factors(adapters)
    return backbone, adapters, peft_twin(request.param, adapters)


def test_function_and_gradient_are_those_of_peft(pair: tuple[Backbone, Adapters, Any]) -> None:
    backbone, adapters, twin = pair
    plain = FAMILIES["linear" if len(adapters.layers) == 14 else "conv1d"][0]()
    assert adapters.layers.keys() == peft_layers(twin).keys()
    ours, theirs = backbone.logits(backbone.hidden(IDS)), twin(input_ids=IDS).logits
    close(ours, theirs)
    assert (ours - plain.logits(plain.hidden(IDS))).abs().max() > 0.1

    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1), dtype=ours.dtype)
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    for name, (down, up) in adapters.split(adapters.gradient).items():
        layer = peft_layers(twin)[name]
        close(down, layer.lora_A["default"].weight.grad)
        close(up, layer.lora_B["default"].weight.grad)
        assert down.abs().max() > 0


def test_fold_is_pefts_merge(pair: tuple[Backbone, Adapters, Any]) -> None:
    backbone, adapters, twin = pair
    before = backbone.hidden(IDS).detach()
    adapters.fold()
    merged = dict(twin.merge_and_unload().named_modules())
    for name, layer in adapters.layers.items():
        close(layer.base.weight, merged[name].weight)
        assert not layer.up.any() and layer.down.any()
    close(backbone.hidden(IDS), before)
    with adapters.answering():
        close(backbone.hidden(IDS), before)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_workspace_has_the_papers_size(family: str) -> None:
    """P_r = sum over maps of r (d_in + d_out).  Source: eq. app-lora-storage."""
    build, targets = FAMILIES[family]
    plain = build().model
    expected = 0
    for name, module in plain.named_modules():
        if name.rpartition(".")[2] in targets:
            expected += RANK * sum(module.weight.shape)
    adapters = adapters_on(build(), targets)
    assert adapters.parameters.numel() == adapters.gradient.numel() == expected
    inside = sum(p.numel() for layer in adapters.layers.values() for p in (layer.down, layer.up))
    assert inside == expected


def test_all_linear_leaves_the_head_alone() -> None:
    backbone = exact_backbone()
    adapters = adapters_on(backbone, "all-linear")
    assert len(adapters.layers) == 14
    assert backbone.model.get_output_embeddings() is backbone.head
    assert isinstance(backbone.head, nn.Linear)


def test_nothing_else_is_trainable() -> None:
    backbone = exact_backbone()
    adapters = adapters_on(backbone, ("q_proj",))
    trainable = {id(p) for p in backbone.model.parameters() if p.requires_grad}
    assert trainable == {
        id(p) for layer in adapters.layers.values() for p in (layer.down, layer.up)
    }


def test_factors_are_views_of_one_vector() -> None:
    backbone = exact_backbone()
    adapters = adapters_on(backbone, PAPER_TARGETS)
    adapters.parameters.data.copy_(torch.arange(adapters.parameters.numel()))
    flat = [p.flatten() for layer in adapters.layers.values() for p in (layer.down, layer.up)]
    assert torch.equal(torch.cat(flat).sort().values, adapters.parameters)
    groups = [group.factors for group in adapters.groups]
    assert torch.equal(torch.cat([one for one in groups if one is not None]), adapters.parameters)
    first = next(iter(adapters.layers.values())).down
    assert first.data_ptr() == adapters.parameters.data_ptr()
    assert first.grad is not None
    assert first.grad.data_ptr() == adapters.gradient.data_ptr()

    torch.optim.SGD([adapters.parameters], lr=1.0).step()  # no gradient yet: nothing moves
    adapters.gradient.fill_(2.0)
    torch.optim.SGD([adapters.parameters], lr=1.0).step()
    assert first[0, 1] == 1.0 - 2.0


def test_gradients_add_up_in_one_place() -> None:
    """Those of the factors, by the model's modules, and of the flat vector itself."""
    backbone = exact_backbone()
    adapters = adapters_on(backbone, PAPER_TARGETS)
    random_factors(adapters)

    def loss() -> Tensor:
        return backbone.hidden(IDS).square().sum() + 3 * adapters.parameters.square().sum()

    leaves, spans = zip(*adapters.leaves(), strict=True)
    assert [span.start for span in spans[1:]] == [span.stop for span in spans[:-1]]
    assert (spans[0].start, spans[-1].stop) == (0, len(adapters.gradient))
    parts = torch.autograd.grad(backbone.hidden(IDS).square().sum(), leaves)
    expected = torch.cat([p.flatten() for p in parts]) + 6 * adapters.parameters.detach()
    loss().backward()
    loss().backward()
    close(adapters.gradient, 2 * expected)


def test_names_and_back() -> None:
    adapters = adapters_on(exact_backbone(), PAPER_TARGETS)
    random_factors(adapters)
    named = adapters.named(adapters.parameters.detach())
    assert len(named) == 28
    assert named["model.layers.1.mlp.up_proj.A"].shape == (RANK, 16)
    assert named["model.layers.1.mlp.up_proj.B"].shape == (32, RANK)
    assert torch.equal(adapters.flatten(named), adapters.parameters)
    del named["model.layers.0.self_attn.q_proj.B"]
    with pytest.raises(HoldfastError, match=r"q_proj\.B"):
        adapters.flatten(named)


def test_the_kaiming_draw_belongs_to_seed_task_and_map() -> None:
    """Uniform within 1 / sqrt(d_in); the same in any precision and beside any other maps."""
    adapters = adapters_on(exact_backbone(), PAPER_TARGETS)
    adapters.fresh(3, 1)
    drawn = {name: layer.down.detach().clone() for name, layer in adapters.layers.items()}
    widths = {16: [], 32: []}
    for name, down in drawn.items():
        widths[down.shape[1]].append(down.flatten())
        assert not adapters.layers[name].up.any()
    for width, values in widths.items():
        entries = torch.cat(values)
        bound = width**-0.5
        assert 0.97 * bound < entries.abs().max() <= bound
        # Five standard errors of the mean and of the mean square of a uniform variable.
        assert entries.mean().abs() < 5 * bound / (3 * len(entries)) ** 0.5
        spread = entries.square().mean() / (bound**2 / 3)
        assert abs(spread - 1) < 5 * (0.8 / len(entries)) ** 0.5

    single = Backbone(tiny_llama(), exact_backbone().tokenizer)
    others = adapters_on(single, ("up_proj",))
    others.fresh(3, 1)
    for name, layer in others.layers.items():
        assert torch.equal(layer.down.double(), drawn[name])
    for seed, task in ((3, 2), (4, 1)):
        adapters.fresh(seed, task)
        assert all((adapters.layers[name].down != drawn[name]).all() for name in drawn)


@pytest.mark.parametrize("precision", ["float32", "model"])
def test_small_updates_survive_merges_in_float32_alone(precision: str) -> None:
    """100 merges of an update that is a fiftieth of bfloat16's resolution."""
    backbone = Backbone(tiny_llama().bfloat16(), exact_backbone().tokenizer)
    adapters = adapters_on(backbone, ("q_proj",), merge_precision=precision)
    assert adapters.parameters.dtype == torch.float32
    name, layer = next(iter(adapters.layers.items()))
    layer.base.weight.data.fill_(1.0)
    adapters.set_dense(name, torch.ones(16, 16))
    step = 2**-8 / 50
    for _ in range(100):
        with torch.no_grad():
            layer.down.fill_(step / (RANK * adapters.scale))
            layer.up.fill_(1.0)
        adapters.fold()
    if precision == "model":
        assert torch.equal(layer.base.weight, torch.ones(16, 16, dtype=torch.bfloat16))
        return
    whole = torch.full((16, 16), 1 + 100 * step)
    torch.testing.assert_close(adapters.dense(name), whole, rtol=1e-5, atol=0)
    assert torch.equal(layer.base.weight, adapters.dense(name).bfloat16())
    assert (layer.base.weight == 1 + 2**-7).all()


def test_inputs_are_averaged_pass_by_pass() -> None:
    backbone = exact_backbone()
    adapters = adapters_on(backbone, ("q_proj", "v_proj", "down_proj"))
    with adapters.averaging_inputs() as means, torch.no_grad():
        backbone.hidden(IDS)
        backbone.hidden(IDS[:1])
        backbone.hidden(IDS[1:])
    assert means.keys() == adapters.layers.keys()
    for name, (both, first, second) in means.items():
        assert both.shape == (32 if "down" in name else 16,)
        close(both, (first + second) / 2)
    embedded = backbone.model.model.embed_tokens(IDS)
    normed = backbone.model.model.layers[0].input_layernorm(embedded)
    close(means["model.layers.0.self_attn.q_proj"][0], normed.mean((0, 1)))
    backbone.hidden(IDS)
    assert all(len(found) == 3 for found in means.values())


def test_wrong_targets_and_ranks_are_named() -> None:
    with pytest.raises(HoldfastError, match="no linear map of this backbone is named nothing"):
        adapters_on(exact_backbone(), ("nothing",))
    config = Adapters.Config(rank=17, targets=("up_proj",))
    backbone = exact_backbone()
    with pytest.raises(HoldfastError, match=r"lora.rank = 17 .*up_proj.*16"):
        Adapters(backbone.model, config, backbone.head)
