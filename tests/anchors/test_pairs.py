"""The paired curvature anchor: positions against the reference, the form, and what is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.anchors.base import State, Step, TaskEnd, TaskStart, Update
from holdfast.anchors.pairs import PairedFisher
from holdfast.core.seeding import generator
from holdfast.model import curvature as curvature_module
from holdfast.model.curvature import CurvatureData, positions_of
from holdfast.model.kronecker import CurvatureConfig, Positions
from holdfast.model.layers import LoraSettings
from reference.curvature import one_sequence
from tests.tiny import exact_backbone, normal, short_sequences

DRAW = (5, "own positions labels", 2)
RHO = 1.7


def positions(count: int, seed: int) -> Positions:
    """Of two maps, 4 -> 5 and 3 -> 2."""
    keys = torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Positions(
        keys,
        {"a": normal(count, 4, seed=seed + 1), "b": normal(count, 3, seed=seed + 2)},
        {"a": normal(count, 5, seed=seed + 3), "b": normal(count, 2, seed=seed + 4)},
    )


def updates(seed: int) -> dict[str, Update]:
    return {
        name: Update(normal(d_out, 2, seed=seed), normal(2, d_in, seed=seed + 9), RHO)
        for name, d_in, d_out in (("a", 4, 5), ("b", 3, 2))
    }


def dense(changes: dict[str, Update]) -> dict[str, Tensor]:
    return {name: update.scale * update.lora_B @ update.lora_A for name, update in changes.items()}


def paired_form(given: Positions, changes: dict[str, Tensor]) -> Tensor:
    """The mean over positions, one at a time."""
    squares = [
        sum(given.gradients[n][row] @ dW @ given.inputs[n][row] for n, dW in changes.items()) ** 2
        for row in range(len(given.keys))
    ]
    return 0.5 * torch.stack(squares).mean()


class Driven:
    """The anchor and its state through tasks of ten items."""

    def __init__(self, sequences: int = 0, **settings: Any) -> None:
        """sequences: of general text."""
        self.sequences = sequences
        self.anchor = PairedFisher(PairedFisher.Config.model_validate(settings))
        self.state: State = {}
        self.task = 0

    def begin(self, given: Positions | None = None) -> None:
        self.task += 1
        at = {"a": torch.zeros(1, dtype=torch.float64)}
        past = 10 * (self.task - 1)
        taken = None if given is None else lambda _: given
        start = TaskStart(self.task, at, 10, past, None, self.sequences, taken)
        self.state = self.anchor.begin(self.state, start)

    def term(self, changes: dict[str, Update]) -> Tensor:
        unused: Any = None
        at = {"a": torch.zeros(1, dtype=torch.float64)}
        step = Step(at, unused, unused, changes)
        return self.anchor.strength(self.state) * self.anchor.loss(self.state, step)

    def end(self, task_positions: Positions, changes: dict[str, Update]) -> None:
        unused: Any = None
        at = {"a": torch.zeros(1)}
        end = TaskEnd(self.task, at, 10, unused, dict, changes, lambda _: task_positions)
        self.state = self.anchor.end(self.state, end)

    def through_a_file(self) -> None:
        packed = {name: tensor.clone() for name, tensor in self.anchor.pack(self.state).items()}
        self.state = self.anchor.unpack(packed)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_positions_are_the_references(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five of some twenty positions, in several batches, in the order of their batches."""
    monkeypatch.setattr(curvature_module, "TOKENS_AT_ONCE", 12)
    backbone = exact_backbone()
    backbone.adapt(LoraSettings(rank=2, targets="all-linear"))
    backbone.workspace.fresh(1, 1)
    sequences = short_sequences(7, seed=3)
    counts = [len(sequence) - 1 for sequence in sequences]
    layers = backbone.workspace.layers
    config = CurvatureConfig(temperature=temperature)
    with backbone.learning():
        positions = positions_of(CurvatureData(backbone, layers, sequences, config, DRAW), 5)
    name = (DRAW[0], f"{DRAW[1]} positions", DRAW[2])
    keys = torch.rand(sum(counts), generator=generator(*name), dtype=torch.float64)
    smallest = keys.sort().values[:5]
    assert torch.equal(positions.keys.sort().values, smallest)
    uniforms = torch.rand(sum(counts), generator=generator(*DRAW)).split(counts)
    modules: Any = {name: layer.module for name, layer in layers.items()}
    for sequence, numbers, drawn in zip(sequences, uniforms, keys.split(counts), strict=True):
        weights = torch.ones(len(sequence) - 1, dtype=torch.float64)
        given = (backbone.model, modules, sequence, numbers, temperature, weights)
        inputs, gradients = one_sequence(*given)
        for place in (drawn <= smallest[-1]).nonzero()[:, 0].tolist():
            row = int((positions.keys == drawn[place]).nonzero())
            for map_name in modules:
                x, g = positions.inputs[map_name][row], positions.gradients[map_name][row]
                torch.testing.assert_close(x, inputs[map_name][place], rtol=1e-9, atol=1e-12)
                torch.testing.assert_close(g, gradients[map_name][place], rtol=1e-9, atol=1e-12)
    assert not any(gradient.requires_grad for gradient in positions.gradients.values())
    with backbone.learning():
        every = positions_of(CurvatureData(backbone, layers, sequences, config, DRAW), 10**6)
    assert len(every.keys) == sum(counts)


def test_the_form_is_the_references_and_counts_from_when_a_position_was_taken() -> None:
    """Twenty sequences of general text, then tasks of ten items; both parts are means."""
    general, first, second = positions(6, seed=1), positions(4, seed=20), positions(4, seed=40)
    driven = Driven(20, strength=3.0, positions=8)
    driven.begin(general)
    since_general = dense(updates(60))
    theirs = 3.0 * (20 / 10) * paired_form(general, since_general)
    torch.testing.assert_close(driven.term(updates(60)), theirs, rtol=1e-12, atol=0)
    driven.end(first, updates(60))
    driven.begin()
    driven.end(second, updates(61))
    driven.begin()
    now = dense(updates(62))
    moved = {name: dense(updates(61))[name] + now[name] for name in now}
    all_of_it = {name: since_general[name] + moved[name] for name in now}
    learned = (4 * paired_form(first, moved) + 4 * paired_form(second, now)) / 8
    form = (20 * learned + 20 * paired_form(general, all_of_it)) / 40
    torch.testing.assert_close(driven.term(updates(62)), 3.0 * (40 / 10) * form, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("given", "asked"), [(None, 512), (positions(6, seed=1), 0)])
def test_without_general_positions_its_sequences_do_not_count(given: Any, asked: int) -> None:
    first = positions(4, seed=20)
    driven = Driven(20, general=asked)
    driven.begin(given)
    driven.end(first, updates(60))
    driven.begin()
    theirs = driven.anchor.config.strength * paired_form(first, dense(updates(62)))
    torch.testing.assert_close(driven.term(updates(62)), theirs, rtol=1e-12, atol=0)


def test_general_text_is_the_unmodified_models() -> None:
    """What a later task samples of it is not taken."""
    general = positions(6, seed=1)
    driven = Driven(20)
    driven.begin(general)
    driven.end(positions(4, seed=20), updates(60))
    driven.begin(positions(6, seed=9))
    assert torch.equal(driven.state["general_keys"], general.keys)


def test_half_precision_is_widened() -> None:
    """Also where the loop computes in half precision by itself."""
    exact = positions(4, seed=20)
    half = Positions(
        exact.keys,
        {name: x.bfloat16() for name, x in exact.inputs.items()},
        {name: g.bfloat16() for name, g in exact.gradients.items()},
    )
    driven = Driven()
    driven.begin()
    driven.end(half, updates(60))
    driven.begin()
    changes = {
        name: Update(update.lora_B.float(), update.lora_A.float(), update.scale)
        for name, update in updates(62).items()
    }
    with torch.autocast("cpu", torch.bfloat16):
        ours = driven.term(changes)
    wide = Positions(
        exact.keys,
        {name: x.double() for name, x in half.inputs.items()},
        {name: g.double() for name, g in half.gradients.items()},
    )
    theirs = driven.anchor.config.strength * paired_form(wide, dense(updates(62)))
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=0)


def test_a_state_goes_through_a_file() -> None:
    driven = Driven(20, positions=5)
    driven.begin(positions(6, seed=1))
    driven.end(positions(4, seed=20), updates(60))
    driven.begin()
    before = driven.term(updates(62))
    driven.through_a_file()
    assert torch.equal(driven.term(updates(62)), before)
    packed = driven.anchor.pack(driven.state)
    for missing in packed:
        with pytest.raises(KeyError):
            driven.anchor.unpack({key: tensor for key, tensor in packed.items() if key != missing})
