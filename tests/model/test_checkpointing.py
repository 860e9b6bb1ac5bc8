"""Layers that are computed twice: the same bits, and less that is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, Gemma3TextConfig

from holdfast import HoldfastError, Trajectory
from holdfast.model import checkpointing as module
from holdfast.model.backbone import Backbone
from holdfast.model.checkpointing import checkpoint_blocks
from holdfast.model.curvature import CurvatureData, curvature_of
from holdfast.model.kronecker import CurvatureConfig, named_tensors
from holdfast.model.layers import LoraSettings
from holdfast.model.sequences import Batch, collate
from tests.exports.exported import configured, facts, family, saved
from tests.tiny import (
    byte_tokenizer,
    draw_factors,
    exact_backbone,
    exact_gpt2,
    short_sequences,
    tiny_llama,
)

CPU = torch.device("cpu")


def gemma(layers: int = 2) -> Backbone:
    """Two norms around each part, soft layers of two kinds."""
    config = Gemma3TextConfig(
        vocab_size=257, hidden_size=16, intermediate_size=32, num_hidden_layers=layers, head_dim=8,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=4, eos_token_id=0,
        bos_token_id=None, pad_token_id=0, initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Backbone(AutoModelForCausalLM.from_config(config), byte_tokenizer())


KINDS: dict[str, Callable[[], Backbone]] = {
    "llama": exact_backbone,
    "gpt2": exact_gpt2,
    "gemma": gemma,
}


def adapted(make: Callable[[], Backbone], *, checkpointing: bool) -> Backbone:
    """With factors that have moved, a seed row that is trained, and dropout."""
    backbone = make()
    backbone.add_replay_token()
    lora = LoraSettings(rank=2, alpha=3, dropout=0.3, targets="all-linear")
    backbone.adapt(lora, seed_row=True, checkpointing=checkpointing)
    draw_factors(backbone.workspace.parameters(), std=0.2, seed=1)
    return backbone


def batches(token: int | None) -> list[Batch]:
    assert token is not None
    return [
        collate([[token, 9, 2, 30, 7, 7, 8], [1, 40], [3, 8, 1, 1]], CPU),
        collate([[7, 1, 2], [token, 6, 6]], CPU),
    ]


def gradients(backbone: Backbone) -> list[Tensor]:
    """Of three losses on one pass, then of a pass with other masks."""
    pair, results = batches(backbone.seed_token), []
    with backbone.learning(dropout=True):
        passed = backbone.forward_pass(*pair, mask_seeds=(3, 4))
        source = torch.Generator().manual_seed(2)
        first, second = (
            (state * torch.randn(state.shape, generator=source)).sum() for state in passed.states
        )
        for loss in (first + second, first, second):
            results += passed.gradient(loss, again=True).values()
        again = backbone.forward_pass(*pair, mask_seeds=(5, 6))
        results += again.gradient(again.states[0][:, 0].sum()).values()
    return [*(state.detach() for state in (*passed.states, *again.states)), *results]


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_the_same_to_the_bit(kind: str) -> None:
    plain, twice = (
        gradients(adapted(KINDS[kind], checkpointing=checkpointing))
        for checkpointing in (False, True)
    )
    assert all(gradient.abs().max() > 0.001 for gradient in plain[4:])
    assert same(twice, plain)


def test_with_other_masks_they_would_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gradients(adapted(exact_backbone, checkpointing=False))
    forgetful = partial(checkpoint.checkpoint, preserve_rng_state=False)
    monkeypatch.setattr(module, "checkpoint", forgetful)
    twice = gradients(adapted(exact_backbone, checkpointing=True))
    assert not same(twice[4:], plain[4:])


@pytest.mark.parametrize("kind", KINDS)
def test_curvature_is_the_same_to_the_bit(kind: str) -> None:
    curvatures = []
    for checkpointing in (False, True):
        backbone = adapted(KINDS[kind], checkpointing=checkpointing)
        draw, layers = (1, "labels", 1), backbone.workspace.layers
        with backbone.learning():
            data = CurvatureData(backbone, layers, short_sequences(6), CurvatureConfig(), draw)
            curvature = curvature_of(data)
        curvatures.append(list(named_tensors(curvature).values()))
    assert same(*curvatures) and curvatures[0][0].any()


class Storages(TorchDispatchMode):
    """Bytes of what was computed within the block and is still alive, now and at most."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    @property
    def alive(self) -> int:
        self._known = {key: entry for key, entry in self._known.items() if not entry[0].expired()}
        return sum(size for _, size in self._known.values())

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None):
        out = operation(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                self._known[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.most = max(self.most, self.alive)
        return out


def test_a_deep_model_keeps_the_inputs_of_its_layers() -> None:
    alive, most = [], []
    for checkpointing in (False, True):
        backbone = Backbone(tiny_llama(layers=8), byte_tokenizer())
        backbone.adapt(LoraSettings(rank=2, dropout=0.1), checkpointing=checkpointing)
        batch = collate([list(range(1, 100))], CPU)
        with backbone.learning(dropout=True), Storages() as storages:
            passed = backbone.forward_pass(batch, mask_seeds=(1,))
            alive.append(storages.alive)
            passed.gradient(passed.states[0].sum())
            most.append(storages.most)
        del passed
    assert alive[1] < alive[0] / 5
    assert most[1] < most[0] / 3


def test_a_model_without_blocks_is_refused() -> None:
    backbone = adapted(exact_gpt2, checkpointing=False)
    backbone.model.transformer.h = torch.nn.ModuleList()
    with pytest.raises(HoldfastError, match="checkpointing: GPT2LMHeadModel has no blocks"):
        checkpoint_blocks(backbone.model)


def test_a_trajectory_is_the_same_and_goes_on_either_way(tmp_path: Path) -> None:
    """Every anchor, with the path of Synaptic Intelligence; it is no part of the identity."""
    base, stream = saved(tmp_path / "base", family("qwen3")), facts(tmp_path)
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
    assert same(*(list(tensors.values()) for tensors in factors))
