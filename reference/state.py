"""Settings, task, state and result of the reference learner."""

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
    curvature_source: str = "own"  # own sequences, or written by the previous model
    curvature_per_item: bool = True
    curvature_most_items: float = float("inf")  # the most past items that count
    curvature_questions: float = 1.0  # weight of a question token; of an answer token: 1
    curvature_temperature: float = 1.0
    pairs_strength: float | None = None
    pairs_kept: int = 512  # positions of all tasks together
    pairs_general: int = 512  # positions of general text
    general: int = 0  # sequences of general text, sampled before the first task
    overlap_strength: float = 0.5  # lambda_perp
    norm_strength: float = 0.0  # lambda_2
    project_gradient: bool = False
    feature_budget: int = 64  # N_H
    feature_batch_size: int = 8


@dataclass
class Task:
    """The data of one task. Sequences are token ids; modules are named as in adapters.factors."""

    sequences: list  # in task order, for the Fisher and the features
    minibatches: list  # of all epochs, in the order of training
    minibatches_per_epoch: int | None = None  # a window never crosses an epoch; None: one epoch
    replay_minibatches: object = None  # one per minibatch, or a function teacher -> such a list
    general_minibatches: list = field(default_factory=list)  # general text, one per minibatch
    past_items: int = 0  # learned before this task
    prompts: list = field(default_factory=list)  # per sequence, the question's length in tokens
    written: list = field(default_factory=list)  # sampled from the previous model, for curvature
    uniforms: list = field(default_factory=list)  # per sequence of `written`: [length - 1]
    own_uniforms: list = field(default_factory=list)  # per sequence of the task: [length - 1]
    position_draws: dict = field(default_factory=dict)  # "own", "general" -> (uniforms, keys)
    initial_factors: dict | None = None  # the ordinary (Kaiming A, zero B); None: PEFT draws them
    osrm_bases: dict | None = None  # module -> V_min^T; None: the basis that LAPACK finds


@dataclass
class State:
    """State between tasks, and during one."""

    backbone: torch.nn.Module  # W_0, or the committed W_{t-1} of merged LoRA and OSRM
    completed: int = 0
    untouched: torch.nn.Module | None = None  # the model before its first task
    factors: dict | None = None  # shared LoRA: module -> (A*, B*)
    past: list = field(default_factory=list)  # O-LoRA: one such dict per task
    features: dict = field(default_factory=dict)  # OSRM: module -> list of means
    reference: dict | None = None  # theta* of both weight anchors
    importance: dict | None = None  # Omega
    fisher: dict | None = None  # the running Fisher
    first_fisher_mean: torch.Tensor | None = None
    curvature: dict | None = None  # module -> (S, G), over all learned items
    general_curvature: dict | None = None  # the same, over general text before the first task
    dense: dict | None = None  # module -> W after the last task
    positions: list = field(default_factory=list)  # of all tasks, as pairs.taken returns them
    general_positions: list = field(default_factory=list)
    pairs_strength: float = 0.0  # during a task: the strength of the paired penalty
    pairs_share: float = 0.0  # during a task: the tasks' part of it; general text has the rest
    start: dict | None = None  # during a task: the factors before its first step
    held: dict | None = None  # during a task: module -> (S, G) of the curvature penalty
    held_strength: float = 0.0  # during a task: the strength of that penalty


@dataclass
class Result:
    model: torch.nn.Module  # after the task, in evaluation mode
    factors: dict  # module -> (A*, B*)
    dense: dict  # module -> effective weight, by formula
    steps: list  # the terms of the objective at each optimizer step
