"""Translate the engine's configuration and random draws into the reference's settings and tasks.

Minibatches, replay sequences and first factors are the engine's, so that only the computation
differs. Tests compare the two with it, benchmarks time them. No other file here imports the engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

import torch

from holdfast.core.seeding import generator
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, Sequences
from holdfast.learning.training import current_minibatches, replay_minibatches
from reference.state import Settings
from reference.state import Task as ReferenceTask

RULES = {"shared": "shared", "merge": "merged", "olora": "o_lora", "osrm": "osrm"}


def settings_of(config: RunConfig, pad: int) -> Settings:
    """The reference's settings for a configuration; pad: the token that fills a batch."""
    names = config.composition.anchors
    return Settings(
        target_modules=config.lora.targets,
        rank=config.lora.rank,
        alpha=config.lora.alpha,
        allocation=RULES[config.composition.allocation],
        dropout=config.lora.dropout,
        pad_id=pad,
        learning_rate=config.optim.lr,
        weight_decay=config.optim.weight_decay,
        clip=config.optim.clip,
        accumulation=config.optim.accumulation,
        cooldown=config.optim.cooldown,
        replay_weight=config.replay.weight if "replay" in names else None,
        replay_temperature=config.replay.temperature,
        function_strength=config.sd.strength if "sd" in names else None,
        function_temperature=config.sd.temperature,
        general_strength=config.general.strength if "general" in names else None,
        general_temperature=config.general.temperature,
        si_strength=config.si.strength if "si" in names else None,
        si_damping=config.si.damping,
        ewc_strength=config.online_ewc.strength if "online_ewc" in names else None,
        ewc_decay=config.online_ewc.decay,
        fisher_budget=config.online_ewc.sequences,
        curvature_strength=config.kfac.strength if "kfac" in names else None,
        curvature_source=config.kfac.source,
        curvature_per_item=config.kfac.per_item,
        curvature_most_items=config.kfac.max_items or math.inf,
        curvature_questions=config.curvature.questions,
        pairs_strength=config.pairs.strength if "pairs" in names else None,
        pairs_kept=config.pairs.positions,
        pairs_general=config.pairs.general,
        general=config.sampling.general,
        curvature_temperature=config.curvature.temperature,
        overlap_strength=config.olora.overlap,
        norm_strength=config.olora.factor_norm,
        project_gradient=config.olora.project_gradient,
        feature_budget=config.osrm.sequences,
        feature_batch_size=config.optim.batch_size,
    )


def reference_task(
    learner: Learner,
    number: int,
    sequences: Sequences,
    replay: Sequences,
    general: Sequences | None = None,
    prompts: Sequence[int] = (),
) -> ReferenceTask:
    """Task ``number`` for the reference: the engine's training data, in the engine's order.

    replay, general: sequences sampled from the engine's previous model; prompts: of ``TaskData``.
    """
    config = learner.config
    seed, size = config.seed, config.optim.batch_size
    epochs = config.optim.epochs + config.optim.cooldown
    minibatches, partners, texts = [], [], []
    held = learner.general()
    for epoch in range(epochs):
        current = current_minibatches(seed, number, epoch, len(sequences), size)
        minibatches += [[sequences[index] for index in chosen] for chosen in current]
        if replay and learner.replay is not None:
            at_once = config.replay.minibatches_per_step
            endless = replay_minibatches(seed, number, epoch, len(replay), size, at_once)
            chosen = islice(endless, len(current))
            partners += [[replay[index] for index in indices] for indices in chosen]
        if held is not None:
            count, at_once = len(held.sequences), held.minibatches_per_step
            endless = replay_minibatches(seed, number, epoch, count, size, at_once, "general order")
            chosen = islice(endless, len(current))
            texts += [[held.sequences[index] for index in indices] for indices in chosen]
    written = [*(replay if learner.needs("curvature") else ()), *(general or ())]
    return ReferenceTask(
        sequences=sequences,
        minibatches=minibatches,
        minibatches_per_epoch=len(minibatches) // epochs,
        replay_minibatches=partners or None,
        general_minibatches=texts,
        written=written,
        uniforms=uniforms(seed, "curvature labels", number, written),
        own_uniforms=own_uniforms(seed, number, sequences),
        past_items=(number - 1) * len(sequences),
        prompts=list(prompts),
        position_draws={
            "own": position_draws(seed, "own positions labels", number, sequences),
            "general": position_draws(seed, "positions labels", number, general or []),
        },
        initial_factors=_first_factors(learner, number),
    )


def own_uniforms(seed: int, task: int, sequences: Sequences) -> list[torch.Tensor]:
    """The uniform numbers with which the engine draws tokens for a task's own curvature."""
    return uniforms(seed, "own curvature labels", task, sequences)


def position_draws(
    seed: int, purpose: str, task: int, sequences: Sequences
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The engine's uniform numbers for drawing tokens, and its keys for choosing positions."""
    counts = [len(sequence) - 1 for sequence in sequences]
    source = generator(seed, f"{purpose} positions", task)
    keys = torch.rand(sum(counts), generator=source, dtype=torch.float64)
    return uniforms(seed, purpose, task, sequences), list(keys.split(counts)) if counts else []


def uniforms(seed: int, purpose: str, task: int, sequences: Sequences) -> list[torch.Tensor]:
    """The engine's uniform numbers for drawing tokens, [length - 1] per sequence."""
    counts = [len(sequence) - 1 for sequence in sequences]
    drawn = torch.rand(sum(counts), 1, generator=generator(seed, purpose, task))
    return [one[:, 0] for one in drawn.split(counts)] if counts else []


def _first_factors(learner: Learner, number: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The factors of a fresh workspace of task ``number``; the learner's own are put back."""
    workspace = learner.workspace
    own = workspace.copied()
    workspace.fresh(learner.config.seed, number)
    drawn = workspace.copied()
    workspace.write(own)
    return {name: (drawn[f"{name}.lora_A"], drawn[f"{name}.lora_B"]) for name in workspace.layers}
