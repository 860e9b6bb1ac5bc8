"""Layers that are computed twice: the same bits, and less that is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, Gemma3TextConfig

from holdfast import HoldfastError, Trajectory
from holdfast.backbone.adapters.dropout import Dropout
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.checkpointing import checkpoint_blocks
from holdfast.backbone.curvature import CurvatureConfig, curvature_of, named
from holdfast.backbone.decoder import attention
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import Batch, collate
from tests.exports.exported import configured, facts, family, saved
from tests.tiny import byte_tokenizer, exact_backbone, exact_gpt2, short_sequences, tiny_llama

CPU = torch.device("cpu")


def gemma(layers: int = 2) -> Backbone:
    """Two norms around each part, soft layers of two kinds: no decoder is written out for it."""
    config = Gemma3TextConfig(
        vocab_size=257, hidden_size=16, intermediate_size=32, num_hidden_layers=layers, head_dim=8,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=4, eos_token_id=0,
        bos_token_id=None, pad_token_id=0, initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Backbone(AutoModelForCausalLM.from_config(config), byte_tokenizer())


KINDS: dict[str, Callable[[], Backbone]] = {
    "written out": exact_backbone,
    "gpt2": exact_gpt2,
    "gemma": gemma,
}


def adapted(make: Callable[[], Backbone], *, checkpointing: bool) -> Backbone:
    """With factors that have moved, a seed row that is trained, and dropout."""
    backbone = make()
    backbone.add_replay_token()
    lora = Adapters.Config(rank=2, alpha=3, dropout=0.3, targets="all-linear")
    reason = backbone.adapt(lora, seed_row=True, checkpointing=checkpointing)
    assert (reason is None) == (make is exact_backbone)
    with torch.no_grad():
        backbone.adapters.parameters.normal_(std=0.2, generator=torch.Generator().manual_seed(1))
    return backbone


def batches(token: int | None) -> list[Batch]:
    assert token is not None
    return [
        collate([[token, 9, 2, 30, 7, 7, 8], [1, 40], [3, 8, 1, 1]], CPU),
        collate([[7, 1, 2], [token, 6, 6]], CPU),
    ]


def gradients(backbone: Backbone) -> list[Tensor]:
    """Of three losses that go back together, then of a pass that draws the masks that follow."""
    adapters, pair = backbone.adapters, batches(backbone.seed_token)
    found = [torch.zeros_like(adapters.gradient) for _ in range(4)]
    with backbone.learning(3, 4):
        passed = backbone.forward_pass(*pair)
        source = torch.Generator().manual_seed(2)
        one, other = (
            (state * torch.randn(state.shape, generator=source)).sum() for state in passed.states
        )
        losses = zip((one + other, one, other), found, strict=False)
        passed.backward(*losses)
        again = backbone.forward_pass(*pair)
        again.backward((again.states[0][:, 0].sum(), found[3]))
    return [*(state.detach() for state in (*passed.states, *again.states)), *found]


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("way", ["short", "fused"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_the_same_to_the_bit(
    kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "fused":
        monkeypatch.setattr(attention, "SHORT", 0)
    plain, twice = (
        gradients(adapted(KINDS[kind], checkpointing=checkpointing))
        for checkpointing in (False, True)
    )
    assert all(one.abs().max() > 0.01 for one in plain)
    assert same(twice, plain)


@pytest.mark.parametrize("kind", KINDS)
def test_with_other_masks_they_would_differ(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gradients(adapted(KINDS[kind], checkpointing=False))
    monkeypatch.setattr(Dropout, "rewound", lambda *_: contextlib.nullcontext())
    twice = gradients(adapted(KINDS[kind], checkpointing=True))
    assert not same(twice[3:], plain[3:])


@pytest.mark.parametrize("kind", KINDS)
def test_observers_see_every_input_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(*, checkpointing: bool) -> list[int]:
        backbone = adapted(KINDS[kind], checkpointing=checkpointing)
        calls = [0, 0]
        for group in backbone.adapters.groups:
            group.observe(lambda _: count(0), lambda _: count(1))

        def count(place: int) -> None:
            calls[place] += 1

        with backbone.learning():
            passed = backbone.forward_pass(batches(backbone.seed_token)[0])
            passed.backward((passed.states[0].sum(), backbone.adapters.gradient))
        return calls

    plain = seen(checkpointing=False)
    assert plain[0] == plain[1] > 0
    assert seen(checkpointing=True) == plain
    monkeypatch.setattr(Adapters, "repeating", lambda *_: contextlib.nullcontext())
    assert seen(checkpointing=True) == [2 * plain[0], plain[1]]


@pytest.mark.parametrize("kind", KINDS)
def test_curvature_is_the_same_to_the_bit(kind: str) -> None:
    found = []
    for checkpointing in (False, True):
        backbone = adapted(KINDS[kind], checkpointing=checkpointing)
        draw = (1, "labels", 1)
        curvature = curvature_of(backbone, short_sequences(6), CurvatureConfig(), draw)
        found.append(list(named(curvature).values()))
    assert same(*found) and found[0][0].any()


class Storages(TorchDispatchMode):
    """Bytes of what was computed within the block and is still alive, now and at most."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    @property
    def alive(self) -> int:
        self._known = {key: one for key, one in self._known.items() if not one[0].expired()}
        return sum(size for _, size in self._known.values())

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None):
        out = operation(*args, **(kwargs or {}))
        for one in pytree.tree_leaves(out):
            if isinstance(one, Tensor):
                storage = one.untyped_storage()
                self._known[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.most = max(self.most, self.alive)
        return out


@pytest.mark.parametrize("kind", ["written out", "gemma"])
def test_a_deep_model_keeps_the_inputs_of_its_layers(kind: str) -> None:
    layers, kept, most = 12, [], []
    for checkpointing in (False, True):
        if kind == "gemma":
            backbone = gemma(layers)
        else:
            backbone = Backbone(tiny_llama(layers=layers), byte_tokenizer())
        backbone.adapt(Adapters.Config(rank=2, dropout=0.1), checkpointing=checkpointing)
        batch = collate([list(range(1, 100))], CPU)
        with backbone.learning(1), Storages() as storages:
            passed = backbone.forward_pass(batch)
            kept.append(storages.alive)
            passed.backward((passed.states[0].sum(), backbone.adapters.gradient))
            most.append(storages.most)
        del passed
    assert kept[1] < kept[0] / 5
    assert most[1] < most[0] / 3


def test_a_model_without_blocks_is_refused() -> None:
    backbone = adapted(exact_gpt2, checkpointing=False)
    backbone.model.transformer.h = torch.nn.ModuleList()
    with pytest.raises(HoldfastError, match="checkpointing: GPT2LMHeadModel has no blocks"):
        checkpoint_blocks(backbone.model, backbone.adapters)


@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_a_trajectory_is_the_same_and_goes_on_either_way(name: str, tmp_path: Path) -> None:
    """Every anchor, with the path of Synaptic Intelligence; it is no part of the identity."""
    base, stream = saved(tmp_path / "base", family(name)), facts(tmp_path)
    factors = []
    for place, switches in (("plain", (False, False)), ("twice", (True, False))):
        for tasks, checkpointing in enumerate(switches, start=1):
            config = configured(
                base, stream, "si_kfac_sd_replay_merge",
                backbone={"checkpointing": checkpointing}, sampling={"general": 2},
            )  # fmt: skip
            trajectory = Trajectory(config, tmp_path / place)
            trajectory.advance(tasks)
        factors.append(load_file(tmp_path / place / "factors" / "task-0002.safetensors"))
    assert same(*(list(one.values()) for one in factors))
