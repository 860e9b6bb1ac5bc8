"""Kronecker factors against the reference, the dense Fisher information and the divergence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import OPTConfig, OPTForCausalLM

from holdfast.anchors.base import Update
from holdfast.anchors.kfac import quadratic_form
from holdfast.core.seeding import generator
from holdfast.model import curvature as curvature_module
from holdfast.model.backbone import Backbone
from holdfast.model.curvature import CurvatureData, curvature_of
from holdfast.model.kronecker import (
    CurvatureConfig,
    KroneckerFactors,
    from_named,
    mix,
    named_tensors,
)
from holdfast.model.layers import LoraSettings
from holdfast.model.lora import LoraWorkspace
from reference.curvature import kronecker_factors
from tests.tiny import byte_tokenizer, exact_backbone, exact_gpt2, flat, short_sequences

DRAW = (5, "curvature labels", 2)


def adapted(
    make: Callable[[], Backbone] = exact_backbone, *, moved: bool = False
) -> tuple[Backbone, LoraWorkspace]:
    """moved: give the low-rank branches something to say."""
    backbone = make()
    backbone.adapt(LoraSettings(rank=2, targets="all-linear"))
    adapters = backbone.workspace
    adapters.fresh(1, 1)
    if moved:
        source = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for layer in adapters.layers.values():
                layer.lora_B.normal_(std=0.1, generator=source)
    return backbone, adapters


def measured(
    backbone: Backbone,
    sequences: list[list[int]],
    config: CurvatureConfig,
    draw: tuple[int, str, int] = DRAW,
    labels: list[list[int]] | None = None,
) -> dict[str, KroneckerFactors]:
    with backbone.learning():
        layers = backbone.workspace.layers
        return curvature_of(CurvatureData(backbone, layers, sequences, config, draw, labels))


def assert_same(
    ours: dict[str, KroneckerFactors], theirs: Mapping[str, Any], rtol: float = 1e-9
) -> None:
    """theirs: Kronecker factors, or the pairs of the reference."""
    for name, pair in theirs.items():
        if isinstance(pair, KroneckerFactors):
            pair = pair.inputs.dense(), pair.outputs.dense()
        dense = ours[name].inputs.dense(), ours[name].outputs.dense()
        torch.testing.assert_close(dense, pair, rtol=rtol, atol=rtol / 1000)


def of_reference(
    backbone: Backbone, sequences: list[list[int]], temperature: float = 1.0, *more: Any
) -> dict[str, Any]:
    """By the plain reference, with the same uniform numbers."""
    counts = [len(sequence) - 1 for sequence in sequences]
    drawn = torch.rand(sum(counts), 1, generator=generator(*DRAW))
    uniforms = [column[:, 0] for column in drawn.split(counts)]
    modules = {name: layer.module for name, layer in backbone.workspace.layers.items()}
    return kronecker_factors(backbone.model, modules, sequences, uniforms, temperature, *more)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize(
    "make",
    [adapted, partial(adapted, moved=True), partial(adapted, exact_gpt2)],
    ids=["llama", "moved", "GPT-2"],
)
def test_they_are_the_references(make, temperature, monkeypatch) -> None:
    """Several batches, sequences of several lengths, logits in chunks."""
    monkeypatch.setattr(curvature_module, "TOKENS_AT_ONCE", 12)
    monkeypatch.setattr(curvature_module, "_LOGITS_AT_ONCE", 257 * 5)
    backbone, adapters = make()
    sequences = short_sequences(7, seed=3)
    config = CurvatureConfig(temperature=temperature)
    ours = measured(backbone, sequences, config)
    theirs = of_reference(backbone, sequences, temperature)
    assert ours.keys() == theirs.keys() == adapters.layers.keys()
    assert_same(ours, theirs)
    assert all(G.abs().max() > 1e-6 for _, G in theirs.values())
    # A graph of the model would stay.
    assert not any(part.requires_grad for part in named_tensors(ours).values())


def test_what_is_held_of_the_maps_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many tokens at once as fit, one at least; the factors are the same.

    Padding does not count: seven sequences in one batch, padded to the longest, and each alone.
    """
    backbone, adapters = adapted(moved=True)
    bytes_per_token = sum(
        (layer.lora_A.shape[1] + 2 * layer.lora_B.shape[0]) * layer.lora_A.element_size()
        for layer in adapters.layers.values()
    )
    sequences = short_sequences(7, seed=4)
    assert len({len(sequence) for sequence in sequences}) > 2
    whole = measured(backbone, sequences, CurvatureConfig())
    for tokens, room in ((4096, 1 << 40), (12, 12 * bytes_per_token + 1), (1, 1)):
        monkeypatch.setattr(curvature_module, "BYTES_AT_ONCE", room)
        assert curvature_module.tokens_that_fit(adapters.layers) == tokens
    assert_same(measured(backbone, sequences, CurvatureConfig()), whole)


@pytest.mark.parametrize("questions", [0.0, 0.3])
def test_tokens_of_questions_may_weigh_less(questions, monkeypatch) -> None:
    """Several batches; a prompt of one token asks nothing that is predicted."""
    monkeypatch.setattr(curvature_module, "TOKENS_AT_ONCE", 12)
    backbone, _ = adapted()
    sequences = short_sequences(7, seed=3)
    prompts = [1, *(len(sequence) - 1 for sequence in sequences[1:])]
    config = CurvatureConfig(questions=questions)
    labels = [[-100] * p + sequence[p:] for p, sequence in zip(prompts, sequences, strict=True)]
    ours = measured(backbone, sequences, config, labels=labels)
    assert_same(ours, of_reference(backbone, sequences, 1.0, prompts, questions))


def test_maps_may_run_in_another_order_than_they_stand_in_the_model() -> None:
    """OPT declares k, v, q and computes q, k, v."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = OPTConfig(
            vocab_size=257, **sizes, word_embed_proj_dim=16, max_position_embeddings=64, dropout=0.0
        )
        model: Any = OPTForCausalLM(config).double()
    for weight in model.parameters():
        weight.data *= 5
    backbone = Backbone(model, byte_tokenizer())
    backbone.adapt(LoraSettings(rank=2, targets=("q_proj", "k_proj", "v_proj")))
    sequences = short_sequences(3)
    ours = measured(backbone, sequences, CurvatureConfig())
    assert_same(ours, of_reference(backbone, sequences), rtol=1e-6)


def test_looking_leaves_nothing_behind() -> None:
    backbone, adapters = adapted(moved=True)
    before = flat(adapters.copied())
    state = torch.get_rng_state()
    measured(backbone, short_sequences(3), CurvatureConfig())
    assert torch.equal(flat(adapters.copied()), before)
    assert all(parameter.grad is None for parameter in adapters.parameters().values())
    assert torch.equal(state, torch.get_rng_state())


def fisher_of_one_position(backbone: Backbone, name: str, sequence: list[int]) -> Tensor:
    """sum_y p(y) vec(dW_y) vec(dW_y)^T over every next token y, by the model's own modules."""
    weight = backbone.model.get_submodule(name).weight.requires_grad_(True)
    logits = backbone.model(input_ids=torch.tensor([sequence]), use_cache=False).logits[0, -1]
    log_p = logits.log_softmax(dim=0)
    total = torch.zeros(weight.numel(), weight.numel(), dtype=torch.float64)
    for token in range(len(log_p)):
        (gradient,) = torch.autograd.grad(log_p[token], weight, retain_graph=True)
        flat = gradient.flatten()
        total += log_p[token].exp().detach() * torch.outer(flat, flat)
    return total


def test_where_the_factorisation_is_exact_it_is_the_fisher_information() -> None:
    """One position and one input: x is constant, so the Fisher information is G (x) S."""
    backbone, _ = adapted()
    name = "model.layers.1.self_attn.v_proj"
    exact = fisher_of_one_position(exact_backbone(), name, [9])
    factors = measured(backbone, [[9, 4]] * 20_000, CurvatureConfig())[name]
    dense = torch.kron(factors.outputs.dense(), factors.inputs.dense())
    # The tokens are drawn: five standard deviations of a mean of 20,000 draws.
    assert torch.linalg.matrix_norm(dense - exact) < 0.05 * torch.linalg.matrix_norm(exact)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_form_is_the_divergence_to_second_order(temperature: float) -> None:
    """tau^2 KL of the tempered distributions of a model and of one a little beside it."""
    backbone, adapters = adapted()
    name = "model.layers.1.mlp.down_proj"
    layer = adapters.layers[name]
    config = CurvatureConfig(temperature=temperature)
    curvature = measured(backbone, [[9, 4]] * 20_000, config, DRAW)
    source = torch.Generator().manual_seed(1)
    lora_B = 1e-3 * torch.randn(layer.lora_B.shape, generator=source, dtype=torch.float64)
    update = Update(lora_B, layer.lora_A.detach(), layer.scale)
    form = quadratic_form({name: update}, curvature)

    def distribution() -> Tensor:
        with backbone.answering():
            hidden = backbone.hidden(torch.tensor([[9]]))[0, -1]
            return (backbone.logits(hidden) / temperature).log_softmax(dim=0)

    before = distribution()
    with torch.no_grad():
        layer.lora_B.copy_(lora_B)
    after = distribution()
    divergence = temperature**2 * (before.exp() * (before - after)).sum()
    assert divergence > 1e-9
    torch.testing.assert_close(form, divergence, rtol=0.05, atol=0)


@pytest.mark.parametrize("width", [2048, 0])
def test_a_curvature_goes_through_a_file(width: int) -> None:
    backbone, _ = adapted()
    config = CurvatureConfig(exact_up_to=width, eigenpairs=3)
    curvature = measured(backbone, short_sequences(4), config, DRAW)
    tensors = named_tensors(curvature)
    # Maps that read one tensor have one S: it is written once.
    assert len({id(t) for t in tensors.values()}) == len(tensors)
    # A file gives them back in another order.
    again = from_named({name: tensors[name].clone() for name in sorted(tensors)})
    assert again.keys() == curvature.keys()
    assert_same(again, curvature, rtol=0)
    damaged = [{**tensors, "G other": torch.zeros(1, 1)}, {**tensors, "X other": torch.zeros(1)}]
    damaged += [{key: t for key, t in tensors.items() if key != gone} for gone in tensors]
    for wrong in damaged:
        with pytest.raises(KeyError):
            from_named(wrong)


def test_a_mean_of_two_curvatures() -> None:
    backbone, _ = adapted()
    first, second = (
        measured(backbone, short_sequences(4, seed), CurvatureConfig(), (seed, "random", 1))
        for seed in (1, 2)
    )
    wanted = {
        name: tuple(
            0.25 * getattr(first[name], side).dense() + 0.75 * getattr(second[name], side).dense()
            for side in ("inputs", "outputs")
        )
        for name in first
    }
    assert_same(mix(first, second, 0.25, torch.device("cpu")), wanted)
