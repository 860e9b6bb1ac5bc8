"""The factors of PEFT's layers: their draws, their merges, and what is dropped."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import MambaConfig, MambaForCausalLM

from holdfast.core.errors import HoldfastError
from holdfast.model.backbone import Backbone
from holdfast.model.curvature import mean_inputs
from holdfast.model.layers import PAPER_TARGETS, LoraSettings, target_maps
from holdfast.model.lora import LoraWorkspace, with_lora
from holdfast.model.sequences import collate
from tests.tiny import (
    draw_factors,
    exact_backbone,
    exact_gpt2,
    flat,
    tiny_gemma_of_images,
    tiny_llama,
)

RANK, ALPHA = 3, 7.5
IDS = torch.tensor([[5, 9, 2, 30, 7], [1, 1, 40, 3, 8]])


class Bare(nn.Module):
    """One map, in no layer that has a number."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(4, 4)

    def get_output_embeddings(self) -> None:
        return None


def adapted(backbone: Backbone, targets: Any = PAPER_TARGETS, **settings: Any) -> LoraWorkspace:
    given = {"rank": RANK, "alpha": ALPHA, "dropout": 0.0, "targets": targets, **settings}
    backbone.adapt(LoraSettings(**given))
    return backbone.workspace


@pytest.mark.parametrize(
    ("make", "targets"),
    [(exact_backbone, PAPER_TARGETS), (exact_gpt2, ("c_attn", "c_proj", "c_fc"))],
)
def test_an_update_is_what_it_says_and_stays_when_it_is_folded(make: Any, targets: Any) -> None:
    """P_r = sum over maps of r (d_in + d_out).  Source: eq. app-lora-storage, eq. app-merge."""
    plain, backbone = make().model, make()
    workspace = adapted(backbone, targets)
    sizes = {name: plain.get_submodule(name).weight.shape for name in workspace.layers}
    assert len(flat(workspace.parameters())) == sum(RANK * sum(size) for size in sizes.values())
    draw_factors(workspace.parameters(), std=0.2)
    with backbone.answering():
        before = backbone.hidden(IDS)
    for name, layer in workspace.layers.items():
        update = ALPHA / RANK * layer.lora_B.detach() @ layer.lora_A.detach()
        plain.get_submodule(name).weight.data += update.t() if make is exact_gpt2 else update
    with torch.no_grad():
        theirs = plain.base_model(input_ids=IDS).last_hidden_state
    torch.testing.assert_close(before, theirs, rtol=1e-11, atol=1e-12)
    workspace.fold()
    assert workspace.is_clear
    with backbone.answering():
        torch.testing.assert_close(backbone.hidden(IDS), before, rtol=1e-11, atol=1e-12)
    backbone.merge_and_unload()
    theirs = backbone.model.base_model(input_ids=IDS).last_hidden_state
    torch.testing.assert_close(theirs, before, rtol=1e-11, atol=1e-12)
    assert type(backbone.model.get_submodule(name)) is type(plain.get_submodule(name))


def test_some_layers_alone_are_adapted() -> None:
    backbone = exact_backbone()
    workspace = adapted(backbone, ("q_proj", "down_proj"), layers=(1,))
    assert list(workspace.layers) == [
        "model.layers.1.self_attn.q_proj",
        "model.layers.1.mlp.down_proj",
    ]
    trained = {name for name, weight in backbone.model.named_parameters() if weight.requires_grad}
    assert len(trained) == 4 and all(".layers.1." in name for name in trained)
    with pytest.raises(HoldfastError, match=r"no map of layer 2 is adapted.*the last is 1"):
        adapted(exact_backbone(), layers=(1, 2))
    with pytest.raises(HoldfastError, match="its layers have no numbers"):
        target_maps(Bare(), LoraSettings(rank=1, layers=(0,)))


def test_all_linear_leaves_the_head_alone_and_trains_factors_only() -> None:
    backbone = exact_backbone()
    workspace = adapted(backbone, "all-linear")
    assert len(workspace.layers) == 14
    assert isinstance(backbone.model.get_output_embeddings(), nn.Linear)
    trainable = {id(p) for p in backbone.model.parameters() if p.requires_grad}
    assert trainable == {id(p) for p in workspace.parameters().values()}


def test_the_kaiming_draw_belongs_to_seed_task_and_map() -> None:
    """Uniform within 1 / sqrt(d_in); the same in any precision and beside any other maps."""
    workspace = adapted(exact_backbone())
    workspace.fresh(3, 1)
    drawn = {name: layer.lora_A.detach().clone() for name, layer in workspace.layers.items()}
    widths: dict[int, list[torch.Tensor]] = {16: [], 32: []}
    for name, down in drawn.items():
        widths[down.shape[1]].append(down.flatten())
        assert not workspace.layers[name].lora_B.any()
    for width, values in widths.items():
        entries = torch.cat(values)
        bound = width**-0.5
        assert 0.97 * bound < entries.abs().max() <= bound
        # Five standard errors of the mean and of the mean square of a uniform variable.
        assert entries.mean().abs() < 5 * bound / (3 * len(entries)) ** 0.5
        spread = entries.square().mean() / (bound**2 / 3)
        assert abs(spread - 1) < 5 * (0.8 / len(entries)) ** 0.5

    others = adapted(Backbone(tiny_llama(), exact_backbone().tokenizer), ("up_proj",))
    others.fresh(3, 1)
    for name, layer in others.layers.items():
        assert torch.equal(layer.lora_A.double(), drawn[name])
    for seed, task in ((3, 2), (4, 1)):
        workspace.fresh(seed, task)
        assert all((workspace.layers[name].lora_A != drawn[name]).all() for name in drawn)


@pytest.mark.parametrize("precision", ["float32", "model"])
def test_small_updates_survive_merges_in_float32_alone(precision: str) -> None:
    """100 merges of an update that is a fiftieth of bfloat16's resolution."""
    backbone = Backbone(tiny_llama().bfloat16(), exact_backbone().tokenizer)
    workspace = adapted(backbone, ("q_proj",), merge_precision=precision)
    name, layer = next(iter(workspace.layers.items()))
    assert layer.lora_A.dtype == torch.float32
    workspace.set_dense({name: torch.ones(16, 16)})
    step = 2**-8 / 50
    for _ in range(100):
        with torch.no_grad():
            layer.lora_A.fill_(step / (RANK * layer.scale))
            layer.lora_B.fill_(1.0)
        workspace.fold()
    if precision == "model":
        assert torch.equal(layer.weight, torch.ones(16, 16, dtype=torch.bfloat16))
        return
    whole = torch.full((16, 16), 1 + 100 * step)
    torch.testing.assert_close(workspace.dense()[name], whole, rtol=1e-5, atol=0)
    assert torch.equal(layer.weight, workspace.dense()[name].bfloat16())
    assert (layer.weight == 1 + 2**-7).all()


def test_matrices_that_were_given_are_not_merged_into() -> None:
    backbone = Backbone(tiny_llama().bfloat16(), exact_backbone().tokenizer)
    workspace = adapted(backbone, ("q_proj",))
    given = {name: matrix.float() for name, matrix in workspace.dense().items()}
    before = {name: matrix.clone() for name, matrix in given.items()}
    workspace.set_dense(given)
    draw_factors(workspace.parameters(), std=0.2)
    workspace.fold()
    for name, matrix in workspace.dense().items():
        assert given[name].equal(before[name]) and not matrix.equal(before[name])


@pytest.mark.parametrize("within", ["autocast", "bfloat16 factors"])
def test_a_product_is_merged_in_float32(within: str) -> None:
    backbone = Backbone(tiny_llama(), exact_backbone().tokenizer)
    workspace = adapted(backbone, ("q_proj",))
    draw_factors(workspace.parameters(), std=0.2)
    layer = next(iter(workspace.layers.values()))
    if within == "bfloat16 factors":
        layer.module.lora_A.bfloat16()
        layer.module.lora_B.bfloat16()
    exact = layer.scale * layer.lora_B.detach().double() @ layer.lora_A.detach().double()
    exact += layer.weight.double()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=within == "autocast"):
        workspace.fold()
    torch.testing.assert_close(layer.weight.double(), exact, rtol=1e-6, atol=1e-6)


def test_inputs_are_averaged_batch_by_batch() -> None:
    backbone = exact_backbone()
    workspace = adapted(backbone, ("q_proj", "v_proj", "down_proj"))
    rows = IDS.tolist()
    with backbone.answering():
        both, parts = (mean_inputs(backbone, workspace.layers, rows, size) for size in (2, 1))
        embedded = backbone.model.model.embed_tokens(IDS)
        normed = backbone.model.model.layers[0].input_layernorm(embedded)
    for name, mean in both.items():
        torch.testing.assert_close(mean, parts[name], rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(
        both["model.layers.0.self_attn.q_proj"], normed.mean((0, 1)), rtol=1e-11, atol=1e-12
    )


def test_masks_belong_to_their_seed_and_nothing_else_is_dropped() -> None:
    backbone = exact_backbone()
    backbone.model.config.attention_dropout = 0.9
    workspace = adapted(backbone, dropout=0.5)
    batch = collate(IDS.tolist(), IDS.device)
    before = torch.get_rng_state()

    def states(seeds: tuple[int, ...], *, dropout: bool = True) -> torch.Tensor:
        with backbone.learning(dropout=dropout):
            return backbone.forward_pass(*[batch] * max(1, len(seeds)), mask_seeds=seeds).states[-1]

    with backbone.answering():
        clear = backbone.states(batch)
    assert torch.equal(states((1,)), clear), "B = 0: nothing to drop"
    draw_factors(workspace.parameters(), std=0.2)
    first, second = states((7,)), states((8,))
    assert not torch.equal(first, second) and not torch.equal(first, states((), dropout=False))
    assert torch.equal(states((8, 7)), first), "the batch beside it has masks of its own"
    plain = states((), dropout=False)
    with backbone.answering():
        assert torch.equal(backbone.states(batch), plain)
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_is_learned_without_an_adapter() -> None:
    backbone = exact_backbone()
    with pytest.raises(HoldfastError, match=r"call adapt\(\) first"), backbone.learning():
        pass
    with backbone.answering():
        assert not torch.is_grad_enabled()


def test_wrong_targets_and_ranks_are_named() -> None:
    with pytest.raises(HoldfastError, match="no linear map of this backbone is named nothing"):
        adapted(exact_backbone(), ("nothing",))
    with pytest.raises(HoldfastError, match=r"lora.rank = 17 .*up_proj.*16"):
        adapted(exact_backbone(), ("up_proj",), rank=17)
    with pytest.raises(HoldfastError, match=r"lora.rank = 9 .*k_proj, 8"):
        adapted(exact_backbone(), ("up_proj", "k_proj"), rank=9)  # the narrowest counts
    adapted(exact_backbone(), ("up_proj",), rank=16)


def test_a_target_that_names_no_map_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    adapted(exact_backbone(), ("q_proj", "vproj"))
    assert "no adapted map of this backbone is named vproj" in caplog.text
    caplog.clear()
    adapted(exact_backbone(), ("q_proj", "v_proj"))
    adapted(exact_gpt2(), "all-linear")
    assert not caplog.text


def test_maps_that_peft_refuses_are_told_in_one_line() -> None:
    """A Mamba layer reads the matrix of its last map and does not call it."""
    config = MambaConfig(vocab_size=257, hidden_size=64, num_hidden_layers=1, eos_token_id=0)
    with pytest.raises(HoldfastError, match=r"lora\.targets: PEFT .*out_proj") as refused:
        with_lora(MambaForCausalLM(config), LoraSettings(rank=2, targets="all-linear"))
    assert "\n" not in str(refused.value)


def test_layers_of_images_are_not_adapted() -> None:
    """No text passes them, so they would have neither a gradient nor a curvature."""
    maps = target_maps(tiny_gemma_of_images(), LoraSettings(rank=2))
    assert len(maps) == 2 * len(PAPER_TARGETS)
    assert all(".language_model." in name for name in maps)
