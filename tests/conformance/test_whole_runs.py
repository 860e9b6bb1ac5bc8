"""Three tasks by the engine and by the plain reference, in float64: the same numbers."""

from __future__ import annotations

import copy
from itertools import islice

import pytest
import torch
from reference.learner import run_task
from reference.state import Settings, State
from reference.state import Task as ReferenceTask

from holdfast.learning.boundary import learn_task
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner
from holdfast.learning.minibatches import current_minibatches, replay_minibatches
from holdfast.learning.progress import Progress
from holdfast.streams import symbol_qa
from tests.tiny import exact_backbone

TARGETS = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")
RULES = {"": "shared", "merge": "merged", "olora": "o_lora", "osrm": "osrm"}
EPOCHS, BATCH, SEED, TASKS = 2, 2, 5, 3
VALUES = {
    "seed": SEED,
    "lora": {"rank": 2, "alpha": 4, "dropout": 0.0, "targets": TARGETS},
    "optim": {"epochs": EPOCHS, "batch_size": BATCH, "lr": 0.01},
    "data": {"samples": 5, "max_new_tokens": 6, "weight": 0.6, "generation_temperature": 1.0},
    "function": {"strength": 0.5},
    "si": {"strength": 0.7},
    "online_ewc": {"strength": 20.0, "decay": 0.9, "sequences": 3},
    "o_lora": {"overlap": 0.05, "factor_norm": 0.01},
    "sequential_osrm": {"sequences": 4, "basis": "lapack"},
}


def both_runs(method: str, accumulation: int, **sections: dict):
    """Learn the same tasks twice; yield (engine, reference state and result) after each."""
    values = {**VALUES, **sections, "method": method}
    values["optim"] = {**VALUES["optim"], "accumulation": accumulation}
    config = RunConfig.of(values)
    learner = Learner(config, exact_backbone())
    rule = RULES[method.rpartition("_")[2]] if method.rpartition("_")[2] in RULES else "shared"
    twin = exact_backbone()
    if learner.replay is not None:
        twin.add_replay_token()
    state = State(twin.model)
    settings = settings_of(config, rule, twin.pad_token)
    stream = symbol_qa(tasks=TASKS, items=5, seed=1)
    for number, task in enumerate(stream.tasks, start=1):
        sequences = learner.encode(task)
        report = learn_task(learner, sequences, Progress())
        given = reference_task(learner, number, sequences, report.replay)
        result = run_task(state, settings, given)
        yield learner, report, state, result


def settings_of(config: RunConfig, rule: str, pad: int) -> Settings:
    names = config.composition.anchors
    return Settings(
        target_modules=TARGETS,
        rank=config.lora.rank,
        alpha=config.lora.alpha,
        allocation=rule,
        dropout=0.0,
        pad_id=pad,
        learning_rate=config.optim.lr,
        weight_decay=config.optim.weight_decay,
        accumulation=config.optim.accumulation,
        replay_weight=config.data.weight if "replay" in names else None,
        replay_temperature=config.data.temperature,
        function_strength=config.function.strength if "sd" in names else None,
        function_temperature=config.function.temperature,
        si_strength=config.si.strength if "si" in names else None,
        si_damping=config.si.damping,
        ewc_strength=config.online_ewc.strength if "online_ewc" in names else None,
        ewc_decay=config.online_ewc.decay,
        fisher_budget=config.online_ewc.sequences,
        overlap_strength=config.o_lora.overlap,
        norm_strength=config.o_lora.factor_norm,
        project_gradient=config.o_lora.project_gradient,
        feature_budget=config.sequential_osrm.sequences,
        feature_batch_size=BATCH,
    )


def reference_task(learner: Learner, number: int, sequences, replay) -> ReferenceTask:
    """The engine's own draws, handed to the reference."""
    minibatches, partners = [], []
    for epoch in range(EPOCHS):
        current = current_minibatches(SEED, number, epoch, len(sequences), BATCH)
        minibatches += [[sequences[i] for i in chosen] for chosen in current]
        if replay:
            endless = replay_minibatches(SEED, number, epoch, len(replay), BATCH, 1)
            chosen = islice(endless, len(current))
            partners += [[replay[i] for i in indices] for indices in chosen]
    drawn = exact_learner(learner.config)
    drawn.adapters.fresh(SEED, number)
    factors = drawn.adapters.split(drawn.adapters.parameters.detach())
    return ReferenceTask(
        sequences=sequences,
        minibatches=minibatches,
        minibatches_per_epoch=len(minibatches) // EPOCHS,
        replay_minibatches=partners or None,
        initial_factors=copy.deepcopy({name: tuple(pair) for name, pair in factors.items()}),
    )


def exact_learner(config: RunConfig) -> Learner:
    return Learner(config, exact_backbone())


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-6, atol=1e-9)


def assert_same(learner: Learner, report, state: State, result) -> None:
    adapters = learner.adapters
    for name, pair in adapters.split(report.factors).items():
        for ours, theirs in zip(pair, result.factors[name], strict=True):
            assert_close(ours, theirs)
        effective = adapters.dense(name)
        if learner.allocation.fate == "kept":
            effective = effective + adapters.scale * (pair[1] @ pair[0])
        assert_close(effective, result.dense[name])
    anchors = dict(learner.anchors)
    if "si" in anchors:
        for name, ours in adapters.named(anchors["si"].importance).items():
            assert_close(ours, state.importance[name])
    if "online_ewc" in anchors:
        for name, ours in adapters.named(anchors["online_ewc"].fisher).items():
            assert_close(ours, state.fisher[name])


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("rule", RULES)
def test_all_anchors_with_each_rule(rule, accumulation):
    method = "si_online_ewc_sd_replay" + (f"_{rule}" if rule else "")
    for learner, report, state, result in both_runs(method, accumulation):
        assert_same(learner, report, state, result)
        # The last epoch's mean loss is the reference's, step by step averaged.
        sft = [step["sft"] for step in result.steps[len(result.steps) // EPOCHS :]]
        if accumulation == 1:
            assert report.epochs[-1]["sft"] == pytest.approx(sum(sft) / len(sft), rel=1e-6)


@pytest.mark.parametrize(
    "method",
    ["vanilla", "merge", "olora", "osrm", "si", "sd", "replay", "online_ewc", "si_replay_olora"],
)
def test_single_mechanisms(method):
    for outcome in both_runs(method, accumulation=1):
        assert_same(*outcome)


def test_gradient_projection():
    section = {**VALUES["o_lora"], "project_gradient": True}
    for outcome in both_runs("sd_olora", accumulation=1, o_lora=section):
        assert_same(*outcome)
