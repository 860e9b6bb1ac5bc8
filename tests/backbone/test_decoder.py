"""The decoder written out against the model's own modules under autograd."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
)

from holdfast.backbone.adapters.workspace import PAPER_TARGETS, Adapters
from holdfast.backbone.decoder import attention, pointwise
from holdfast.backbone.decoder.decoder import Decoder
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import Batch, collate
from tests.tiny import ExactNorm, byte_tokenizer, exact_backbone

CPU = torch.device("cpu")
SHAPE = {
    "vocab_size": 257,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "eos_token_id": 0,
    "bos_token_id": None,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "llama3 rotary": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8,
        }
    },
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 10, "tie_word_embeddings": False},
}


def backbone_of(family: str, **changes: Any) -> Backbone:
    config = AutoConfig.for_model(
        family.split()[0].removesuffix("3") if "rotary" in family else family,
        **{**SHAPE, **FAMILIES[family], **changes},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = AutoModelForCausalLM.from_config(config).double()
        for name, module in list(model.named_modules()):
            if type(module).__name__.endswith("RMSNorm"):
                parent, _, child = name.rpartition(".")
                weight = 1 + 0.3 * torch.randn_like(module.weight)
                norm = ExactNorm(weight, module.variance_epsilon)
                setattr(model.get_submodule(parent), child, norm)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.data.normal_(std=0.3)
    return Backbone(model, byte_tokenizer())


def adapted(
    backbone: Backbone, targets: Any = PAPER_TARGETS, dropout: float = 0.0, *, fused: bool = False
) -> Adapters:
    config = Adapters.Config(rank=3, alpha=7.5, dropout=dropout, targets=targets)
    backbone.adapt(config, seed_row=backbone.seed_token is not None, fused=fused)
    with torch.no_grad():
        backbone.adapters.parameters.normal_(std=0.2, generator=torch.Generator().manual_seed(1))
    return backbone.adapters


def batches(second: int = 25) -> list[Batch]:
    """One that is ragged and one that is not."""
    ragged = [[5, 9, 2, 30, 7, 7, 8], [1, 40], [3, 8, 1, 1]]
    return [collate(ragged, CPU), collate([[7, 1, 2], [second, 6, 6]], CPU)]


def both_ways(backbone: Backbone, run: Callable[[], Any], *seeds: int) -> tuple[Any, Any]:
    """What ``run`` gives through the decoder, then through the modules."""
    assert backbone.decoder is not None
    with backbone.learning(*seeds):
        ours = run()
    with backbone.by_modules(), backbone.learning(*seeds):
        theirs = run()
    return ours, theirs


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("way", ["written out", "fused"])
@pytest.mark.parametrize("targets", [PAPER_TARGETS, ("v_proj", "q_proj", "up_proj"), ("k_proj",)])
@pytest.mark.parametrize("family", FAMILIES)
def test_states_and_gradients_are_those_of_the_modules(
    family: str, targets: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several losses that go back together, each through the batches it looks at."""
    if way == "fused":
        monkeypatch.setattr(attention, "SHORT", 0)
    backbone = backbone_of(family)
    token = backbone.add_replay_token()
    adapters = adapted(backbone, targets)
    weights = [torch.randn(len(one.inputs), 24, dtype=torch.float64) for one in batches(token)]

    def run() -> list[Tensor]:
        passed = backbone.forward_pass(*batches(token))
        whole, first, second = (adapters.gradient.new_zeros(adapters.gradient.shape) for _ in "abc")
        one, other = (
            (state * weight).sum() for state, weight in zip(passed.states, weights, strict=True)
        )
        direct = 3 * adapters.parameters.sum()
        losses = [(one + direct, first), (one.detach() * other, second), (2 * one, first)]
        passed.backward(*losses, (2 * one + other, whole))
        return [*(state.detach() for state in passed.states), whole, first, second]

    ours, theirs = both_ways(backbone, run)
    for mine, other in zip(ours, theirs, strict=True):
        close(mine, other)
        assert other.abs().max() > 0.1
    states, (whole, first, second) = theirs[:2], theirs[2:]
    one = (states[0] * weights[0]).sum()
    close(whole, (first - 3) * 2 / 3 + second / one)


def test_dropout_reaches_every_branch() -> None:
    """Without padding the two ways draw the same masks."""
    backbone = backbone_of("llama")
    adapters = adapted(backbone, dropout=0.3)
    even = [collate([[5, 9, 2, 3], [1, 4, 4, 8]], CPU), collate([[7, 1, 2]], CPU)]

    def run() -> list[Tensor]:
        passed = backbone.forward_pass(*even)
        first, second = passed.states
        gradients = torch.zeros(2, len(adapters.gradient), dtype=torch.float64)
        both = first.square().sum() + second.square().sum()
        passed.backward((both, gradients[0]), (first.sum(), gradients[1]))
        return [first.detach(), second.detach(), gradients]

    ours, theirs = both_ways(backbone, run, 3, 4)
    for mine, other in zip(ours, theirs, strict=True):
        close(mine, other)
    with backbone.learning():
        assert not torch.allclose(backbone.states(*even)[0], ours[0])


def test_a_loss_that_no_state_enters_goes_nowhere_else() -> None:
    backbone = backbone_of("qwen3")
    adapters = adapted(backbone)
    with backbone.learning():
        passed = backbone.forward_pass(*batches())
        passed.backward((adapters.parameters.square().sum(), adapters.gradient))
    close(adapters.gradient, 2 * adapters.parameters.detach())


def test_closed_branches_cost_nothing_and_change_nothing() -> None:
    backbone = backbone_of("qwen2")
    adapters = adapted(backbone)
    adapters.clear()
    with backbone.learning():
        opened = backbone.forward_pass(*batches())
    with backbone.answering():
        closed = backbone.states(*batches())
    for ours, theirs in zip(closed, opened.states, strict=True):
        close(ours, theirs.detach())
        assert not ours.requires_grad


def test_what_is_kept_lasts_as_long_as_the_pass() -> None:
    """Another pass in between does not disturb it, nor what was in the buffer before."""
    backbone = backbone_of("qwen3")
    adapters = adapted(backbone)
    first, second = batches()
    expected, other, gradient = torch.zeros(3, len(adapters.gradient), dtype=torch.float64)
    with backbone.learning():
        alone = backbone.forward_pass(first)
        alone.backward((alone.states[0].square().sum(), expected))
        again, between = backbone.forward_pass(first), backbone.forward_pass(second)
        between.backward((between.states[0].sum(), other))
        gradient += 1
        again.backward((again.states[0].square().sum(), gradient))
    close(gradient, expected + 1)
    assert not torch.allclose(other, expected)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_act": "gelu"}, "activation"),
        ({"attention_dropout": 0.1}, "activation or its dropout"),
        ({"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}, "attention"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "rotary"),
    ],
)
def test_what_it_does_not_know_it_leaves_to_the_modules(changes: Any, reason: str) -> None:
    backbone = backbone_of("qwen2", **changes)
    adapters = adapted(backbone)
    assert backbone.decoder is None
    found = Decoder.of(backbone.model, adapters)
    assert isinstance(found, str)
    assert reason in found


def test_another_architecture_is_named() -> None:
    config = GPT2Config(vocab_size=257, n_embd=16, n_layer=1, n_head=2, eos_token_id=0)
    backbone = Backbone(GPT2LMHeadModel(config), byte_tokenizer())
    adapters = Adapters(backbone.model, Adapters.Config(rank=2, targets=("c_attn",)), backbone.head)
    found = Decoder.of(backbone.model, adapters)
    assert isinstance(found, str)
    assert "GPT2Model" in found


def test_a_model_that_computes_something_else_is_found_out() -> None:
    """A hook on a layer: the names are known, the states are not what they say."""
    backbone = exact_backbone()
    backbone.model.model.layers[0].register_forward_hook(lambda *_: 1.5 * _[2])
    adapters = Adapters(backbone.model, Adapters.Config(rank=2), backbone.head)
    found = Decoder.of(backbone.model, adapters)
    assert isinstance(found, str)
    assert "differ" in found


def test_pointwise_gradients() -> None:
    """Each backward is the transpose of autograd's own derivative."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=source).requires_grad_()

    source = torch.Generator().manual_seed(0)
    x, upstream = draw(5, 3, 8), draw(5, 3, 8).detach()
    for weight in (draw(3, 8).detach(), draw(8).detach()):
        normed, _ = pointwise.rms_norm(x, weight, 1e-3)
        (expected,) = torch.autograd.grad(normed, x, upstream)
        for norm, norm_back in (
            (pointwise.rms_norm, pointwise.rms_norm_backward),
            (pointwise.rms_norm_fused, pointwise.rms_norm_fused_backward),
        ):
            ours, kept = norm(x.detach(), weight, 1e-3)
            close(ours, normed.detach())
            close(norm_back(upstream, weight, 1e-3, *kept), expected)
    cos, sin = draw(5, 1, 8).detach(), draw(5, 1, 8).detach()
    swapped = torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)
    rotated = x * cos + swapped * sin
    close(pointwise.rotate(x.detach(), cos, sin), rotated.detach())
    (expected,) = torch.autograd.grad(rotated, x, upstream)
    close(pointwise.rotate_backward(upstream, cos, sin), expected)
    pair, upstream = draw(5, 12), draw(5, 6).detach()
    gate, up = pair.chunk(2, dim=-1)
    close(pointwise.gated(pair.detach()), (torch.nn.functional.silu(gate) * up).detach())
    (expected,) = torch.autograd.grad(torch.nn.functional.silu(gate) * up, pair, upstream)
    for back in (pointwise.gated_backward, pointwise.gated_fused_backward):
        into = torch.empty(5, 12, dtype=torch.float64)
        back(upstream, pair.detach(), into)
        close(into, expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("part", pointwise.Pointwise._fields)
def test_each_part_compiles_whole(part: str) -> None:
    """Of rows that are cut out of others, and into such; the same up to rounding."""
    source = torch.Generator().manual_seed(0)
    rows, weight, cos, sin = (
        torch.randn(*shape, generator=source) for shape in ((5, 4, 8), (3, 8), (5, 1, 8), (5, 1, 8))
    )
    x, pair, upstream = rows[:, :3], rows.flatten(1)[:, :12], rows.flatten(1)[:, 12:18]
    into = torch.zeros(2, 9, 12)
    _, kept = pointwise.rms_norm(x, weight, 1e-3)
    given: dict[str, tuple[Any, ...]] = {
        "rms_norm": (x, weight, 1e-3),
        "rms_norm_backward": (x, weight, 1e-3, *kept),
        "rotate": (x, cos, sin),
        "rotate_backward": (x, cos, sin),
        "gated": (pair,),
    }
    plain = getattr(pointwise.Pointwise(), part)
    whole = torch.compile(plain, dynamic=True, fullgraph=True)
    for one, place in ((plain, into[0]), (whole, into[1])):
        if part not in given:
            one(upstream, pair, place[4:])
    assert part in given or into[0].any()
    torch.testing.assert_close(into[1], into[0])
    if part in given:
        torch.testing.assert_close(whole(*given[part]), plain(*given[part]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_decoder_goes_the_plain_ones_way() -> None:
    """There and back, of several losses and of batches of other sizes than it saw first."""
    found = []
    for fused in (False, True):
        backbone = backbone_of("qwen3")
        adapters = adapted(backbone, fused=fused)
        assert backbone.decoder is not None and backbone.fused == fused
        with backbone.learning():
            passed = backbone.forward_pass(*batches())
            first, second = passed.states
            gradients = torch.zeros(2, len(adapters.gradient), dtype=torch.float64)
            both = first.square().sum() + second.square().sum()
            passed.backward((both, gradients[0]), (first.sum(), gradients[1]))
        found.append([first.detach(), second.detach(), gradients])
    for mine, other in zip(*found, strict=True):
        close(mine, other)
