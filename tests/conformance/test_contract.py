"""What every anchor, every rule and every composition of them must keep."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.allocation.base import Opening
from holdfast.learning import training
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, TaskData
from holdfast.learning.method import known_allocations, known_anchors
from holdfast.learning.progress import Progress
from holdfast.learning.task import TaskReport, learn_task
from holdfast.learning.training import current_minibatches
from holdfast.model.sequences import pad_right
from tests.tiny import draw_factors, exact_backbone, flat, short_sequences

ANCHORS, RULES = tuple(known_anchors()), tuple(known_allocations())
SUBSETS = [
    subset
    for size in (0, 1, 2, len(ANCHORS))  # all pairs, and all at once
    for subset in itertools.combinations(ANCHORS, size)
]
COMPOSITIONS = [(anchors, rule) for rule in RULES for anchors in SUBSETS]
FROM_THE_FIRST = {"general"}  # anchors of the model before its first task
ITEMS = 4
VALUES: dict[str, Any] = {
    "lora": {"rank": 2, "alpha": 4, "dropout": 0.2, "targets": ("q_proj", "v_proj", "down_proj")},
    "optim": {"epochs": 1, "batch_size": 2, "lr": 0.01},
    "sampling": {"samples": 4, "max_new_tokens": 5},
    "si": {"strength": 10.0},
    "online_ewc": {"strength": 100.0},
    "kfac": {"strength": 10.0},
    "pairs": {"strength": 10.0, "positions": 12},
    "general": {"strength": 2.0, "texts": 4},
    "olora": {"overlap": 0.05},
}
Composition = tuple[tuple[str, ...], str]


def new_learner(composition: Composition) -> Learner:
    """The replay token is there with or without a data anchor, so that methods can be paired."""
    anchors, rule = composition
    config = RunConfig.of({**VALUES, "method": "_".join((*anchors, rule))})
    backbone = exact_backbone()
    backbone.add_replay_token()
    return Learner(config, backbone)


def sequences_of(learner: Learner, task: int) -> list[list[int]]:
    return short_sequences(ITEMS, seed=task, first=learner.backbone.seed_token)


def learn(learner: Learner) -> TaskReport:
    past_items = ITEMS * learner.completed
    sequences = sequences_of(learner, learner.completed + 1)
    return learn_task(learner, TaskData(sequences, past_items=past_items), Progress())


def global_states() -> list[Any]:
    numpy_state: Any = np.random.get_state(legacy=True)  # noqa: NPY002
    return [torch.get_rng_state().tolist(), numpy_state[1].tolist(), random.getstate()]


class Draws:
    """Everything random that the optimisation of a task uses, by the seed that named it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.masks: dict[tuple[int, str], list[torch.Tensor]] = defaultdict(list)
        self.orders: list[Any] = []
        self._named: dict[int, tuple[int, str]] = {}
        self._task = 0
        self._current: tuple[int, str] | None = None
        drop, seed_all, derive = nn.Dropout.forward, torch.manual_seed, training.derive

        def spied_derive(seed: int, *purpose: Any) -> int:
            value = derive(seed, *purpose)
            self._named[value] = (purpose[1], purpose[0])
            return value

        def spied_seed(seed: int) -> Any:
            self._current = self._named.get(seed)
            return seed_all(seed)

        def spied_drop(dropout: nn.Dropout, x: torch.Tensor) -> torch.Tensor:
            dropped = drop(dropout, x)
            if dropout.training and self._current is not None:
                self.masks[self._current].append(dropped.detach() == 0)
            return dropped

        def spied_order(*arguments: Any) -> list[list[int]]:
            order = current_minibatches(*arguments)
            self.orders.append(order)
            return order

        monkeypatch.setattr(training, "derive", spied_derive)
        monkeypatch.setattr(training, "current_minibatches", spied_order)
        monkeypatch.setattr(torch, "manual_seed", spied_seed)
        monkeypatch.setattr(nn.Dropout, "forward", spied_drop)


class Run:
    """Two tasks of one composition."""

    def __init__(self, composition: Composition) -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            draws = Draws(monkeypatch)
            learner = new_learner(composition)
            before = global_states()
            self.reports = [learn(learner), learn(learner)]
            self.global_states_kept = before == global_states()
        self.masks, self.orders = draws.masks, draws.orders


@pytest.fixture(scope="module")
def runs() -> dict[Composition, Run]:
    return {composition: Run(composition) for composition in COMPOSITIONS}


def test_losses_are_exactly_zero_before_a_past_exists(runs: dict[Composition, Run]) -> None:
    for (anchors, _), run in runs.items():
        for epoch in run.reports[0].epochs:
            assert all(epoch[name] == 0.0 for name in anchors if name not in FROM_THE_FIRST)


def test_general_text_is_a_past_from_the_first_task_on(runs: dict[Composition, Run]) -> None:
    for (anchors, _), run in runs.items():
        for name in FROM_THE_FIRST & set(anchors):
            assert run.reports[0].epochs[-1][name] > 1e-9


def test_losses_are_positive_once_weights_moved(runs: dict[Composition, Run]) -> None:
    for (anchors, _), run in runs.items():
        for name in anchors:
            assert run.reports[1].epochs[-1][name] > 1e-6


def test_the_first_task_does_not_know_its_method(runs: dict[Composition, Run]) -> None:
    """Before a past exists all compositions are the same learner, bit for bit."""
    plain = flat(runs[(), "shared"].reports[0].factors)
    for (anchors, _), run in runs.items():
        alike = torch.equal(flat(run.reports[0].factors), plain)
        assert alike == (not FROM_THE_FIRST & set(anchors))


@pytest.mark.parametrize("rule", RULES)
def test_every_anchor_matters(runs: dict[Composition, Run], rule: str) -> None:
    """No two sets of anchors teach the second task the same factors."""
    learned = [flat(runs[anchors, rule].reports[1].factors) for anchors in SUBSETS]
    for first, second in itertools.combinations(learned, 2):
        assert (first - second).abs().max() > 1e-6


def test_every_rule_matters(runs: dict[Composition, Run]) -> None:
    for anchors in SUBSETS:
        learned = [flat(runs[anchors, rule].reports[1].factors) for rule in RULES]
        for first, second in itertools.combinations(learned, 2):
            assert (first - second).abs().max() > 1e-6


def test_global_generators_stay_untouched(runs: dict[Composition, Run]) -> None:
    assert all(run.global_states_kept for run in runs.values())


def test_compositions_stay_paired(runs: dict[Composition, Run]) -> None:
    """An anchor shifts neither the order of the data nor the masks of the current minibatches."""
    plain = runs[(), "shared"]
    for (anchors, _), run in runs.items():
        assert run.orders == plain.orders
        for task in (1, 2):
            ours, theirs = run.masks[task, "dropout"], plain.masks[task, "dropout"]
            assert len(ours) == len(theirs) > 0
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        assert ("replay" in anchors) == ((2, "replay dropout") in run.masks)
        assert ("general" in anchors) == ((1, "general dropout") in run.masks)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "shared"])
def test_initial_factors_are_paired(rule: str) -> None:
    """OSRM's depend on the features it has seen; given the same ones, on nothing else."""
    starts = []
    for anchors in ((), ANCHORS):
        learner = new_learner((anchors, rule))
        learn(new := new_learner(((), rule)))
        opening = Opening(2, learner.config.seed)
        learner.allocation.begin(new.allocation_state, learner.workspace, opening)
        starts.append(flat(learner.workspace.copied()))
    assert torch.equal(*starts)


@pytest.mark.parametrize("name", ["si", "online_ewc", "kfac", "pairs", "general"])
def test_a_state_of_other_names_is_refused(name: str) -> None:
    learner = new_learner(((name,), "shared"))
    learn(learner)
    anchor = learner.anchors[0][1]
    state = anchor.pack(learner.states[name])
    damaged = [{**state, "other": torch.zeros(1)}]
    for missing in state:
        rest = {key: tensor for key, tensor in state.items() if key != missing}
        damaged += [rest, {**rest, "other": state[missing]}]
    for wrong in damaged:
        with pytest.raises(KeyError):
            anchor.unpack(wrong)
    assert anchor.unpack({}) == {}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_refuses_what_is_not_its_state(rule: str) -> None:
    learner = new_learner(((), rule))

    def load_and_begin() -> None:
        # OSRM learns the names of the maps when it opens a workspace.
        state = learner.allocation.unpack({"other": torch.ones(1, 16)})
        learner.allocation.begin(state, learner.workspace, Opening(2, 0))

    with pytest.raises(KeyError):
        load_and_begin()


@pytest.mark.parametrize("rule", RULES)
def test_a_boundary_keeps_the_function(rule: str) -> None:
    """Neither retiring the factors nor opening a workspace changes what the model computes."""
    learner = new_learner(((), rule))
    ids, _ = pad_right(sequences_of(learner, 9), 0, torch.device("cpu"))

    def hidden() -> torch.Tensor:
        with torch.no_grad():
            return learner.backbone.hidden(ids)

    state = learner.allocation.begin({}, learner.workspace, Opening(1, 0))
    draw_factors(learner.workspace.parameters(), std=0.3)
    before, untrained = hidden(), new_learner(((), rule))
    state = learner.allocation.retire(state, learner.workspace)
    torch.testing.assert_close(hidden(), before, rtol=1e-12, atol=1e-12)
    learner.allocation.begin(state, learner.workspace, Opening(2, 0))
    torch.testing.assert_close(hidden(), before, rtol=1e-12, atol=1e-12)
    assert (untrained.backbone.hidden(ids) - before).abs().max() > 0.1
