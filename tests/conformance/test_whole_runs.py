"""Three tasks by the engine and by the plain reference, in float64: the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from holdfast.allocation.osrm import SequentialOSRM, quiet_directions
from holdfast.core.seeding import generator
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, TaskData
from holdfast.learning.progress import Progress
from holdfast.learning.task import learn_task
from holdfast.model.projection import Projection
from reference.learner import run_task
from reference.state import State
from reference.translation import RULES, reference_task, settings_of
from tests.tiny import exact_backbone, flat, short_sequences

TARGETS = ("q_proj", "v_proj", "o_proj", "down_proj")
ANCHORS = ("si", "online_ewc", "kfac", "pairs", "sd", "general", "replay")
EPOCHS, BATCH, SEED, TASKS, ITEMS = 2, 2, 5, 3, 5
VALUES: dict[str, Any] = {
    "seed": SEED,
    "lora": {"rank": 2, "alpha": 4, "dropout": 0.0, "targets": TARGETS},
    "optim": {"epochs": EPOCHS, "batch_size": BATCH, "lr": 0.01},
    "sampling": {"samples": 3, "max_new_tokens": 6, "temperature": 1.0},
    "replay": {"weight": 0.6},
    "sd": {"strength": 0.5},
    "si": {"strength": 0.7},
    "online_ewc": {"strength": 20.0, "decay": 0.9, "sequences": 3},
    "kfac": {"strength": 3.0},
    "pairs": {"strength": 3.0, "positions": 9, "general": 6},
    "general": {"strength": 0.8, "texts": 3, "temperature": 1.5},
    "curvature": {"temperature": 1.5},
    "olora": {"overlap": 0.05, "factor_norm": 0.01},
    "osrm": {"sequences": 3, "basis": "lapack"},
}


def both_runs(
    method: str, accumulation: int = 1, tasks: int = TASKS, **sections: Any
) -> Iterator[tuple[Learner, Any, State, Any]]:
    """Learn the same tasks twice; yield (engine, its report, reference state, result) after each.

    Five sequences in minibatches of two: the last minibatch of an epoch is short, and so is the
    last window of two of its three minibatches.
    """
    values = {**VALUES, **sections, "method": method}
    optim = {**VALUES["optim"], **sections.get("optim", {})}
    values["optim"] = {**optim, "accumulation": accumulation}
    config = RunConfig.of(values)
    learner = Learner(config, exact_backbone())
    twin = exact_backbone()
    if learner.backbone.seed_token is not None:
        twin.add_replay_token()
    state = State(twin.model)
    settings = settings_of(config, twin.pad_token)
    for number in range(1, tasks + 1):
        sequences = short_sequences(ITEMS, seed=number, first=learner.backbone.seed_token)
        prompts = [len(sequence) // 2 for sequence in sequences]
        data = TaskData(sequences, prompts, past_items=(number - 1) * ITEMS)
        bases = isotropic_bases(learner)
        report = learn_task(learner, data, Progress())
        given = reference_task(learner, number, sequences, report.replay, report.general, prompts)
        given = replace(given, osrm_bases=bases)
        result = run_task(state, settings, given)
        yield learner, report, state, result


def isotropic_bases(learner: Learner) -> dict[str, torch.Tensor] | None:
    """What OSRM draws for the next task in the null space; None with LAPACK's and other rules."""
    rule = learner.allocation
    if not isinstance(rule, SequentialOSRM) or rule.config.basis == "lapack":
        return None
    past = learner.allocation_state
    named = {name: generator(SEED, "osrm", learner.completed + 1, name) for name in past}
    rank = learner.config.lora.rank
    return {name: quiet_directions(past[name], rank, source) for name, source in named.items()}


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal but for the order of float64 sums.

    Adam divides a gradient by its own size, so rounding of 1e-16 in a coordinate whose gradient is
    near its epsilon of 1e-8 may move it by 1e-8 of each of some ten steps of 0.01.
    """
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-8, atol=1e-9)


def assert_same(learner: Learner, report: Any, state: State, result: Any) -> None:
    workspace = learner.workspace
    for name, layer in workspace.layers.items():
        pair = [report.factors[f"{name}.{part}"] for part in ("lora_A", "lora_B")]
        for ours, theirs in zip(pair, result.factors[name], strict=True):
            assert_close(ours, theirs)
        effective = workspace.dense()[name]
        if learner.allocation.after_task == "keep":
            effective = effective + layer.scale * (pair[1] @ pair[0])
        assert_close(effective, result.dense[name])
    theirs = {
        "si": {"importance": state.importance, "reference": state.reference},
        "online_ewc": {"fisher": state.fisher},
    }
    for anchor in theirs.keys() & learner.states.keys():
        for part, expected in theirs[anchor].items():
            for name, ours in learner.states[anchor][part].items():
                assert_close(ours, expected[_name_in_reference(name)])
    if "online_ewc" in learner.states:
        assert_close(learner.states["online_ewc"]["scale"], state.first_fisher_mean)
    if isinstance(learner.allocation, SequentialOSRM):
        for name, ours in learner.allocation_state.items():
            assert_close(ours, torch.stack(state.features[name]))


def _name_in_reference(name: str) -> str:
    return name.replace(".lora_", ".")


ENGINE_NAMES = {"function": "sd", "ewc": "online_ewc"}  # of the reference's terms


def assert_same_terms(learner: Learner, report: Any, result: Any) -> None:
    """Every term of the objective in the last epoch: the mean over its steps."""
    last = result.steps[len(result.steps) // 2 :]
    for term in ("sft", "replay", "function", "general", "si", "ewc", "kfac", "pairs"):
        if term in last[0]:
            mean = sum(step[term] for step in last) / len(last)
            name = ENGINE_NAMES.get(term, term)
            assert report.epochs[-1][name] == pytest.approx(mean, rel=1e-8)


def tag(anchors: tuple[str, ...], rule: str) -> str:
    return "_".join((*anchors, rule))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("anchors", [(), *((name,) for name in ANCHORS), ANCHORS])
def test_every_anchor_with_every_rule(anchors: tuple[str, ...], rule: str) -> None:
    tasks = TASKS if anchors == ANCHORS else 2
    for learner, report, state, result in both_runs(tag(anchors, rule), tasks=tasks):
        assert_same(learner, report, state, result)
        assert_same_terms(learner, report, result)
        # The data anchor is compared on samples that exist.
        assert ("replay" in anchors and state.completed > 1) == bool(report.replay)


def test_osrm_as_it_is_unless_one_says_lapack() -> None:
    """Another orthonormal set of the same null space, and all that follows from it."""
    whole = {"sequences": 3, "basis": "isotropic"}
    drawn = []
    for learner, report, state, result in both_runs("osrm", osrm=whole):
        assert_same(learner, report, state, result)
        assert_same_terms(learner, report, result)
        drawn.append(report.factors)
    *_, (_, other, _, _) = both_runs("osrm")
    assert not torch.allclose(flat(other.factors), flat(drawn[-1]))


@pytest.mark.parametrize("rule", ["shared", "merge"])
@pytest.mark.parametrize("source", ["own", "written"])
def test_general_text_from_the_first_task_on(rule: str, source: str) -> None:
    sampling = {**VALUES["sampling"], "general": 3}
    kfac = {"source": source, "strength": 2.0, "max_items": ITEMS + 2}
    curvature = {"temperature": 1.5, "questions": 0.3}
    for learner, report, state, result in both_runs(
        tag(("kfac",), rule), tasks=3, sampling=sampling, kfac=kfac, curvature=curvature
    ):
        first = state.completed == 1
        assert len(report.general) == (3 if first or source == "written" else 0)
        assert report.epochs[-1]["kfac"] > 0
        assert_same(learner, report, state, result)
        assert_same_terms(learner, report, result)


@pytest.mark.parametrize("rule", ["shared", "merge"])
def test_positions_of_general_text(rule: str) -> None:
    """Under a rule that merges a change counts in the dense matrices, whose factors are fresh."""
    sampling = {**VALUES["sampling"], "general": 3}
    curvature = {"temperature": 1.5, "questions": 0.3}
    for learner, report, state, result in both_runs(
        tag(("pairs",), rule), tasks=3, sampling=sampling, curvature=curvature
    ):
        assert len(report.general) == (3 if state.completed == 1 else 0)
        assert len(state.general_positions) == 6 and len(state.positions) == 9
        assert_same(learner, report, state, result)
        assert_same_terms(learner, report, result)


@pytest.mark.parametrize("rule", ["shared", "olora"])
def test_accumulation_with_a_short_last_window(rule: str) -> None:
    """O-LoRA's penalty is added once per step, undivided."""
    for outcome in both_runs(tag(ANCHORS, rule), accumulation=2, tasks=2):
        assert_same(*outcome)
    assert len(outcome[3].steps) == EPOCHS * 2


def test_a_cooldown() -> None:
    """Two epochs more, in which the rate falls."""
    cooling = {"cooldown": 2}
    for outcome in both_runs(tag(("si", "replay"), "merge"), 2, 2, optim=cooling):
        assert_same(*outcome)
    assert len(outcome[1].epochs) == EPOCHS + 2
    *_, plain = both_runs(tag(("si", "replay"), "merge"), 2, 2)
    assert not torch.allclose(flat(plain[1].factors), flat(outcome[1].factors))


def test_gradient_projection() -> None:
    section = {**VALUES["olora"], "project_gradient": True}
    for outcome in both_runs("sd_olora", olora=section):
        assert_same(*outcome)


def test_logits_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary too large for one piece changes nothing, not even the path of SI."""
    monkeypatch.setattr(Projection.__init__, "__defaults__", (258 * 3, None))
    for outcome in both_runs(tag(ANCHORS, "merge"), tasks=2):
        assert_same(*outcome)
