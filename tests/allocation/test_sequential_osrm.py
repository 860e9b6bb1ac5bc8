"""Sequential OSRM's features and starting directions against the reference, in float64."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.allocation.base import Closing, Opening, State
from holdfast.allocation.osrm import SequentialOSRM, quiet_directions
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner
from holdfast.model.lora import LoraSettings, LoraWorkspace
from reference import adapters as peft_adapters
from reference import osrm as plain
from tests.tiny import draw_factors, exact_backbone, flat, short_sequences

RANK, TARGETS = 3, ("q_proj", "o_proj", "down_proj")
VALUES: dict[str, Any] = {
    "method": "osrm",
    "lora": {"rank": RANK, "alpha": 4, "targets": TARGETS},
    "optim": {"batch_size": 3},
}


def features(tasks: int, width: int, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(tasks, width, generator=source, dtype=torch.float64)


def test_features_are_the_references() -> None:
    """Seven of eight ragged sequences in batches of three: padding counts, batches weigh alike."""
    learner = Learner(RunConfig.of(VALUES), exact_backbone())
    draw_factors(learner.workspace.parameters(), std=0.3)
    sequences = short_sequences(8)
    ours = learner.mean_inputs(sequences, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        twin = peft_adapters.attach(exact_backbone().model, TARGETS, RANK, 4)
    layers = learner.workspace.layers.items()
    peft_adapters.write(
        twin, {name: (layer.lora_A.detach(), layer.lora_B.detach()) for name, layer in layers}
    )
    theirs = plain.feature_means(twin, peft_adapters.adapted(twin), sequences, 7, 3, 0)
    assert ours.keys() == theirs.keys()
    for name, mean in ours.items():
        torch.testing.assert_close(mean, theirs[name], rtol=1e-11, atol=1e-13)
    whole = learner.mean_inputs(sequences, 8)
    assert all((whole[name] - mean).abs().max() > 1e-4 for name, mean in ours.items())


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


@pytest.mark.parametrize("tasks", [1, 5, 13])
def test_the_start_is_orthogonal_to_the_past(tasks: int) -> None:
    """A h = 0 for every stored mean; orthogonal rows of the mean Kaiming norm kappa."""
    features_of, opened, ordinary = start("isotropic", tasks)
    for name, layer in opened.layers.items():
        assert (layer.lora_A @ features_of[name].T).abs().max() < 1e-13
        kappa = ordinary.layers[name].lora_A.norm(dim=1).mean()
        gram = layer.lora_A @ layer.lora_A.T
        torch.testing.assert_close(
            gram, kappa.square() * torch.eye(RANK, dtype=gram.dtype), rtol=1e-12, atol=1e-13
        )
        assert (ordinary.layers[name].lora_A @ features_of[name].T).abs().max() > 0.1


def test_the_first_task_starts_as_usual() -> None:
    _, opened, ordinary = start("isotropic", tasks=0)
    assert torch.equal(flat(opened.copied()), flat(ordinary.copied()))


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
