"""OSRM's directions, and what O-LoRA freezes; their whole runs are in tests/conformance."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.allocation.base import Closing, Opening, State
from holdfast.allocation.olora import OLoRA
from holdfast.allocation.osrm import SequentialOSRM, quiet_directions
from holdfast.model.layers import LoraSettings
from holdfast.model.lora import LoraWorkspace
from reference import allocation
from reference import osrm as plain
from tests.tiny import draw_factors, exact_backbone

RANK, TARGETS = 3, ("q_proj", "o_proj", "down_proj")


def features(tasks: int, width: int, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(tasks, width, generator=source, dtype=torch.float64)


def start(basis: Any, tasks: int, task: int = 9) -> tuple[State, LoraWorkspace, LoraWorkspace]:
    """The state of a rule after random features, its opened workspace, and the ordinary one."""
    rule = SequentialOSRM(SequentialOSRM.Config(basis=basis))
    state: State = {}
    workspaces = []
    for _ in range(2):
        backbone = exact_backbone()
        backbone.adapt(LoraSettings(rank=RANK, alpha=4, targets=TARGETS))
        workspaces.append(backbone.workspace)
    opened, ordinary = workspaces
    for number in range(tasks):
        means = {
            name: features(1, layer.lora_A.shape[1], seed=number)[0]
            for name, layer in opened.layers.items()
        }
        state = rule.end(state, Closing(number + 1, lambda limit, means=means: means))
    rule.begin(state, opened, Opening(task, seed=4))
    ordinary.fresh(4, task)
    return state, opened, ordinary


@pytest.mark.parametrize("tasks", [1, 5, 13, 14, 40])
def test_the_lapack_basis_is_the_references(tasks: int) -> None:
    """eq. app-osrm-init; 14 features of 16 leave fewer than three free directions, 40 none."""
    features_of, opened, ordinary = start("lapack", tasks)
    for name, layer in opened.layers.items():
        directions = plain.smallest_right_singular_vectors(features_of[name], RANK)
        expected = plain.initial_A(ordinary.layers[name].lora_A, directions)
        torch.testing.assert_close(layer.lora_A, expected, rtol=1e-10, atol=1e-12)
        assert not layer.lora_B.any()


def test_draws_are_named() -> None:
    """The length of the rows, which differs by the Kaiming draw, is left out."""
    first, again, other = (
        {name: layer.lora_A / layer.lora_A.norm() for name, layer in workspace.layers.items()}
        for workspace in (start("isotropic", 5, task)[1] for task in (9, 9, 10))
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all((first[name] - other[name]).abs().max() > 0.01 for name in first)


@pytest.mark.parametrize("tasks", [3, 8, 30])
def test_no_directions_are_quieter(tasks: int) -> None:
    """Their energy is the sum of the smallest squared singular values, whatever the basis."""
    H = features(tasks, 10)
    values = torch.linalg.svdvals(H).square()
    padded = torch.cat([values, torch.zeros(max(0, 10 - tasks), dtype=H.dtype)])
    least = padded.sort().values[:RANK].sum()
    for source in (None, torch.Generator().manual_seed(1)):
        directions = quiet_directions(H, RANK, source)
        energy = (directions @ H.T).square().sum()
        torch.testing.assert_close(energy, least, rtol=1e-9, atol=1e-20)
        eye = torch.eye(RANK, dtype=H.dtype)
        torch.testing.assert_close(directions @ directions.T, eye, rtol=0, atol=1e-13)


def test_isotropic_means_no_preferred_direction() -> None:
    """The mean outer product over 2000 draws is the projector on the null space over its width."""
    H, draws = features(4, 10), 2000
    source = torch.Generator().manual_seed(1)
    rows = torch.cat([quiet_directions(H, 1, source) for _ in range(draws)])
    free = torch.eye(10, dtype=H.dtype) - torch.linalg.pinv(H) @ H
    # An entry of a unit vector's outer product varies by less than 0.5.
    assert (rows.T @ rows / draws - free / 6).abs().max() < 5 * 0.5 / draws**0.5
    assert rows.mean(0).abs().max() < 5 / draws**0.5


def test_repeated_features_are_no_trouble() -> None:
    """Two tasks with the same mean occupy one direction."""
    H = features(1, 16).expand(5, -1)
    directions = quiet_directions(H, RANK, torch.Generator().manual_seed(0))
    assert (directions @ H.T).abs().max() < 1e-13


def test_maps_with_the_same_past_have_directions_of_their_own() -> None:
    backbone = exact_backbone()
    backbone.adapt(LoraSettings(rank=RANK, alpha=4, targets=TARGETS))
    layers = backbone.workspace.layers
    state = {name: features(5, layer.lora_A.shape[1]) for name, layer in layers.items()}
    SequentialOSRM(SequentialOSRM.Config()).begin(state, backbone.workspace, Opening(9, seed=4))
    rows = [
        layer.lora_A / layer.lora_A.norm()
        for layer in layers.values()
        if layer.lora_A.shape[1] == 16
    ]
    assert len(rows) > 1
    assert all((row - rows[0]).abs().max() > 0.01 for row in rows[1:])


def test_pairs_that_repeat_each_other_span_no_more_than_one() -> None:
    """Source: app:olora; the projected gradient is the one beside the pair that was repeated."""
    backbone = exact_backbone()
    backbone.adapt(LoraSettings(rank=RANK, alpha=4, targets=TARGETS))
    layers = backbone.workspace.layers
    rule = OLoRA(OLoRA.Config(project_gradient=True))
    past = {name: features(RANK, layer.lora_A.shape[1]) for name, layer in layers.items()}
    twice = {f"past {name}": torch.cat([rows, rows]) for name, rows in past.items()}
    state = rule.begin(twice, backbone.workspace, Opening(3, seed=0))
    before = {name: torch.randn_like(layer.lora_A) for name, layer in layers.items()}
    for name, layer in layers.items():
        layer.lora_A.grad = before[name].clone()
    rule.adjust_gradient(state, backbone.workspace)
    for name, layer in layers.items():
        expected = allocation.project_gradient(before[name], past[name])
        torch.testing.assert_close(layer.lora_A.grad, expected, rtol=1e-10, atol=1e-12)


def test_a_map_that_no_token_passed_has_no_gradient_to_project() -> None:
    """As an expert, or a map for images."""
    backbone = exact_backbone()
    backbone.adapt(LoraSettings(rank=RANK, alpha=4, targets=TARGETS))
    layers = backbone.workspace.layers
    rule = OLoRA(OLoRA.Config(project_gradient=True))
    past = {f"past {name}": layer.lora_A.detach().clone() for name, layer in layers.items()}
    state = rule.begin(past, backbone.workspace, Opening(2, seed=0))
    rule.adjust_gradient(state, backbone.workspace)
    assert all(layer.lora_A.grad is None for layer in layers.values())


def test_the_sum_of_the_pairs_is_exact_in_a_narrow_backbone() -> None:
    """It is summed in float32 and rounded once, however many pairs there are."""
    backbone = exact_backbone()
    backbone.model.to(torch.bfloat16)
    backbone.adapt(LoraSettings(rank=RANK, alpha=4, targets=("q_proj",)))
    adapters = backbone.workspace
    rule = OLoRA(OLoRA.Config())
    state: State = {}
    exact = {name: adapters.dense()[name].double() for name in adapters.layers}
    for task in range(1, 31):
        state = rule.begin(state, adapters, Opening(task, seed=0))
        draw_factors(adapters.parameters(), std=0.01, seed=task)
        for name, layer in adapters.layers.items():
            exact[name] += (
                layer.scale * layer.lora_B.detach().double() @ layer.lora_A.detach().double()
            )
        state = rule.retire(state, adapters)
    for name, layer in adapters.layers.items():
        torch.testing.assert_close(adapters.dense()[name].double(), exact[name], rtol=0, atol=1e-6)
        assert layer.weight.dtype == torch.bfloat16
        assert torch.equal(layer.weight, adapters.dense()[name].bfloat16())
