"""What the reference learner is told, what it keeps and what it returns."""

from dataclasses import dataclass, field

import torch


@dataclass
class Settings:
    """A configuration. A strength or weight of None switches its anchor off."""

    target_modules: tuple[str, ...]
    rank: int
    alpha: float
    allocation: str = "shared"  # shared, merged, o_lora or osrm
    dropout: float = 0.05
    pad_id: int = 0
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    clip: float = 1.0
    accumulation: int = 1
    replay_weight: float | None = None  # w
    replay_temperature: float = 2.0  # tau_D
    function_strength: float | None = None  # lambda_F
    function_temperature: float = 5.0  # tau_F
    general_strength: float | None = None
    general_temperature: float = 1.0
    si_strength: float | None = None  # lambda_SI
    si_damping: float = 0.1  # xi
    cooldown: int = 0  # epochs at the end in which the rate falls to 0
    ewc_strength: float | None = None  # lambda_EWC
    ewc_decay: float = 1.0  # gamma
    fisher_budget: int = 1000  # N_F
    curvature_strength: float | None = None
    curvature_source: str = "own"  # own or written
    curvature_per_item: bool = True
    curvature_most_items: float = float("inf")  # learned before that count
    curvature_questions: float = 1.0  # what a token of a question weighs
    curvature_temperature: float = 1.0
    pairs_strength: float | None = None
    pairs_kept: int = 512  # positions of all that was learned
    pairs_general: int = 512  # and of general text
    general: int = 0  # sequences of general text before the first task
    overlap_strength: float = 0.5  # lambda_perp
    norm_strength: float = 0.0  # lambda_2
    project_gradient: bool = False
    feature_budget: int = 64  # N_H
    feature_batch_size: int = 8


@dataclass
class Task:
    """What arrives. Token ids throughout; `module -> tensor` as in adapters.factors."""

    sequences: list  # in task order, for the Fisher and the features
    minibatches: list  # of all epochs, in the order of training
    minibatches_per_epoch: int | None = None  # a window never crosses an epoch; None: one epoch
    replay_minibatches: object = None  # one a minibatch, or a function from the teacher to them
    general_minibatches: list = field(default_factory=list)  # of general text, one a minibatch
    past_items: int = 0  # learned before
    prompts: list = field(default_factory=list)  # of each sequence, how many of its tokens ask
    written: list = field(default_factory=list)  # by the previous model, for the curvature
    uniforms: list = field(default_factory=list)  # of each of these, one a predicting position
    own_uniforms: list = field(default_factory=list)  # likewise, of the task's own sequences
    position_draws: dict = field(default_factory=dict)  # own, general -> (uniforms, keys)
    initial_factors: dict | None = None  # the ordinary (Kaiming A, zero B); None: PEFT draws them
    osrm_bases: dict | None = None  # V_min^T, where another basis of the space than LAPACK's counts


@dataclass
class State:
    """What the learner keeps between tasks."""

    backbone: torch.nn.Module  # W_0, or the committed W_{t-1} of merged LoRA and OSRM
    completed: int = 0
    untouched: torch.nn.Module | None = None  # the model before its first task
    factors: dict | None = None  # shared LoRA's (A*, B*)
    past: list = field(default_factory=list)  # O-LoRA's, one dict a task
    features: dict = field(default_factory=dict)  # OSRM's, module -> list of means
    reference: dict | None = None  # theta* of both weight anchors
    importance: dict | None = None  # Omega
    fisher: dict | None = None  # the running Fisher
    first_fisher_mean: torch.Tensor | None = None
    curvature: dict | None = None  # module -> (S, G), over all that was learned
    general_curvature: dict | None = None  # likewise, over general text before the first task
    dense: dict | None = None  # module -> W after the last task
    positions: list = field(default_factory=list)  # of all that was learned, as pairs.taken
    general_positions: list = field(default_factory=list)
    start: dict | None = None  # of the task being learned: the factors before its first step
    held: dict | None = None  # likewise: module -> (S, G)
    held_strength: float = 0.0  # likewise


@dataclass
class Result:
    model: torch.nn.Module  # after the task, in evaluation mode
    factors: dict  # module -> (A*, B*)
    dense: dict  # module -> effective weight, by formula
    steps: list  # the terms of the objective at each optimizer step
