"""The configuration of one trajectory, and which of its settings change the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from holdfast.allocation import ALLOCATIONS
from holdfast.allocation.base import Allocation
from holdfast.allocation.olora import OLoRA
from holdfast.allocation.osrm import SequentialOSRM
from holdfast.anchors import ANCHORS, REFERENCE_POINTS
from holdfast.anchors.base import Anchor, Needs
from holdfast.anchors.general import GeneralDistillation
from holdfast.anchors.kfac import KroneckerFisher
from holdfast.anchors.online_ewc import OnlineEWC
from holdfast.anchors.pairs import PairedFisher
from holdfast.anchors.reference_points import StoredReplay
from holdfast.anchors.replay import GenerativeReplay
from holdfast.anchors.sd import SelfDistillation
from holdfast.anchors.si import SynapticIntelligence
from holdfast.core.config import Config, apply_overrides, build, given_overrides, given_settings
from holdfast.core.mechanisms import BY_TAG
from holdfast.evaluation.recall import Recall
from holdfast.learning.method import (
    Method,
    anchor_kinds,
    known_allocations,
    parse_method,
    plugged_in,
)
from holdfast.model.backbone import Backbone
from holdfast.model.generation.sampling import Sampling
from holdfast.model.kronecker import CurvatureConfig
from holdfast.model.layers import LoraSettings
from holdfast.streams import StreamConfig, Template
from holdfast.streams.load import SIZE_AND_SEED, is_generated


class Optimisation(Config):
    """AdamW and its schedule, created anew for every task (tab:implementation-hparams).

    Not from the paper: min_steps: train more epochs until a task has had this many steps;
    acquired: train more epochs until the argmax is right on this fraction of the task's answer
    tokens (in one epoch's forward passes, mean over minibatches), up to ``max_steps``; cooldown:
    then train this many more epochs, at least ``min_steps`` steps, in which the rate falls linearly
    to 0.
    """

    epochs: int = Field(10, ge=1)
    min_steps: int = Field(0, ge=0)
    acquired: float | None = Field(None, gt=0, le=1)
    max_steps: int = Field(400, ge=1)
    cooldown: int = Field(0, ge=0)
    batch_size: int = Field(8, ge=1)  # sequences per minibatch
    accumulation: int = Field(1, ge=1)  # minibatches per step
    lr: float = Field(5e-4, gt=0, le=1)
    weight_decay: float = Field(0.01, ge=0)
    clip: float = Field(1.0, gt=0)  # global gradient norm
    warmup: float = Field(0.05, ge=0, le=1)  # fraction of a task's least steps before the cooldown

    def steps_in_epoch(self, sequences: int) -> int:
        """Optimiser steps in one epoch over this many sequences."""
        minibatches = -(-sequences // self.batch_size)
        return -(-minibatches // self.accumulation)

    def epochs_of(self, sequences: int) -> int:
        """The least number of epochs before the cooldown, for a task of this many sequences."""
        return max(self.epochs, -(-self.min_steps // self.steps_in_epoch(sequences)))

    def most_epochs_of(self, sequences: int) -> int:
        """The most epochs before the cooldown: with ``acquired`` perhaps more than the least."""
        least = self.epochs_of(sequences)
        if self.acquired is None:
            return least
        return max(least, -(-self.max_steps // self.steps_in_epoch(sequences)))

    def cooldown_of(self, sequences: int) -> int:
        """The epochs of the cooldown, for a task of this many sequences; 0 if it has none."""
        least = -(-self.min_steps // self.steps_in_epoch(sequences))
        return max(self.cooldown, least) if self.cooldown else 0

    def steps_of(self, sequences: int) -> int:
        """The least number of steps for a task of this many sequences, cooldown included."""
        epochs = self.epochs_of(sequences) + self.cooldown_of(sequences)
        return epochs * self.steps_in_epoch(sequences)


class Balance(Config):
    """Weights of a new task's question and answer tokens in its loss; not from the paper.

    share: the weight of question tokens is the new items' fraction of all items learned, new ones
    included, and replay has the rest instead of ``replay.weight``; so every item keeps an equal
    share of the model's samples, whatever the sizes of tasks. questions: the weight of question
    tokens in methods without replay; with ``share`` an upper bound on it. answers: the weight of
    answer tokens, by default the same as of question tokens.

    In the first task all weights are 1.
    """

    share: bool = False
    questions: float | None = Field(None, gt=0, le=1)
    answers: float | None = Field(None, gt=0, le=1)


class Keep(Config):
    """Files to keep in addition to those needed to continue; no effect on results."""

    factors: bool = False  # every task's factors, so that any past model can be rebuilt
    snapshot_every: int = Field(25, ge=1)  # tasks between copies of the dense matrices


class Evaluation(Recall.Config):
    """How and when recall is measured, and which capability suites are run between tasks.

    rows: measure recall on all learned tasks after ``every`` task, or every N tasks (a number) and
    at the horizon, or at the ``horizon`` only. Except with ``horizon``, each task is also measured
    just before and just after it is learned.
    capability: suites to run before the first task, after every ``capability_every`` tasks and at
    the horizon. They do not change the other results.
    items: keep the verdict on every item at every observed row, for `holdfast items`.
    """

    rows: Literal["every", "horizon"] | PositiveInt = "every"
    capability: tuple[Literal["text"], ...] = ()
    capability_every: int = Field(10, ge=1)
    items: bool = False


class RunConfig(Config):
    """All settings of one trajectory; the defaults are the paper's."""

    method: str = "vanilla"
    seed: int = Field(42, ge=0, lt=2**63)
    stream: StreamConfig = StreamConfig()
    template: Template.Config = Template.Config()
    backbone: Backbone.Config = Backbone.Config()
    lora: LoraSettings = LoraSettings()
    optim: Optimisation = Optimisation()
    balance: Balance = Balance()
    sampling: Sampling = Sampling()
    curvature: CurvatureConfig = CurvatureConfig()
    replay: GenerativeReplay.Config = GenerativeReplay.Config()
    sd: SelfDistillation.Config = SelfDistillation.Config()
    general: GeneralDistillation.Config = GeneralDistillation.Config()
    si: SynapticIntelligence.Config = SynapticIntelligence.Config()
    online_ewc: OnlineEWC.Config = OnlineEWC.Config()
    kfac: KroneckerFisher.Config = KroneckerFisher.Config()
    pairs: PairedFisher.Config = PairedFisher.Config()
    stored: StoredReplay.Config = StoredReplay.Config()
    olora: OLoRA.Config = OLoRA.Config()
    osrm: SequentialOSRM.Config = SequentialOSRM.Config()
    plugins: dict[str, dict[str, Any]] = {}
    evaluation: Evaluation = Evaluation()
    keep: Keep = Keep()

    @model_validator(mode="before")
    @classmethod
    def _sections_by_name(cls, values: Any) -> Any:
        """Rename sections with former names; move sections of plug-ins into ``plugins``."""
        if not isinstance(values, Mapping) or values.keys() <= cls.model_fields.keys():
            return values
        values = given_settings(values)
        plugins = plugged_in() - cls.model_fields.keys()
        moved = {name: section for name, section in values.items() if name in plugins}
        others = {name: section for name, section in values.items() if name not in plugins}
        return {**others, "plugins": {**values.get("plugins", {}), **moved}}

    @field_validator("method")
    @classmethod
    def _canonical(cls, tag: str) -> str:
        return parse_method(tag).tag

    @model_validator(mode="after")
    def _makes_sense(self) -> RunConfig:
        # Settings of a plug-in that the method lacks have no effect, as those of a built-in: a
        # suite gives all its methods the same ones.
        anchors, rules, added = anchor_kinds(), known_allocations(), plugged_in()
        for name in self.plugins:
            if name not in added:  # a section of Holdfast's own there would be ignored
                raise ValueError(f"plugins.{name}: there is no such plug-in; remove it")
            self._plugged(name, anchors.get(name) or rules[name])
        truncates = self.replay.loss == "cross_entropy" and self.replay.vocabulary is not None
        if truncates and "replay" in self.composition.anchors:
            raise ValueError(
                "replay.vocabulary truncates the soft loss, replay.loss=cross_entropy has none; "
                "set one of the two"
            )
        if self.balance.questions is not None and any(need.replay for need in self._needs()):
            raise ValueError(
                f"balance.questions: replay.weight says it for method {self.method}; remove it"
            )
        rule = self.composition.allocation
        folds = known_allocations()[rule].after_task != "keep"
        if folds and self.backbone.quantization != "none":
            raise ValueError(
                f"backbone.quantization = {self.backbone.quantization}: {rule} adds to the "
                "matrices, and nothing can be added to quantized ones; use shared factors, or none"
            )
        return self

    @classmethod
    def of(cls, values: Mapping[str, Any], overrides: Iterable[str] = ()) -> RunConfig:
        """Build from nested values and dotted overrides; HoldfastError if one is wrong.

        An override that replaces a generated stream by a stored one uses all of the stored one:
        the tasks, items per task and seed given for the generated stream are dropped.
        """
        values, overrides = given_settings(values), given_overrides(overrides)
        named = apply_overrides({}, overrides).get("stream")
        instead = named.get("name") if isinstance(named, dict) else None
        given = values.get("stream") or {}
        # Values of the wrong type are left to the validation, which reports them.
        stored = instead and not is_generated(instead)
        if stored and isinstance(given, Mapping) and is_generated(given.get("name")):
            stream = {key: given[key] for key in given if key not in SIZE_AND_SEED}
            values = {**values, "stream": stream}
        return build(cls, apply_overrides(values, overrides), source="configuration")

    @property
    def composition(self) -> Method:
        """The mechanisms that the method's tag names."""
        return parse_method(self.method)

    @property
    def has_replay_token(self) -> bool:
        """Whether sequences begin with the replay token: an anchor's class needs such samples."""
        return any(need.replay or need.curvature for need in self._needs())

    def anchors(self) -> list[Anchor]:
        """New instances of the method's anchors, with empty state."""
        kinds = anchor_kinds()
        return [self._build(name, kinds[name]) for name in self.composition.anchors]

    def allocation(self) -> Allocation:
        """A new instance of the method's allocation rule, with empty state."""
        name = self.composition.allocation
        rule: Allocation = self._build(name, known_allocations()[name])
        return rule

    def numbers(self) -> dict[str, Any]:
        """The settings that change this method's results, and no others.

        Left out: paths and names (the stream and the backbone have fingerprints), the horizon, and
        the settings of mechanisms that the method does not use.
        """
        values = self.model_dump(mode="json")
        method = self.composition
        mechanisms = (*method.anchors, method.allocation)
        sections = {"template", "lora", "optim", "balance"}
        sections |= BY_TAG.keys() & set(mechanisms)
        needs = self._needs()
        if any(need.replay for need in needs):
            sections.add("replay")  # the learner reads w and the minibatches per step from it
        if any(_samples(need) for need in needs):
            sections.add("sampling")
        if any(need.curvature or need.prior_curvature for need in needs):
            sections.add("curvature")
        elif any(need.positions for need in needs) and self.curvature != type(self.curvature)():
            sections.add("curvature")  # left out at its defaults, as in earlier versions
        chosen = {key: value for key, value in values.items() if key in sections}
        anchors, rules = anchor_kinds(), known_allocations()
        plugins = {
            name: self._plugged(name, anchors.get(name) or rules[name]).model_dump(mode="json")
            for name in mechanisms
            if name not in (*ANCHORS, *REFERENCE_POINTS, *ALLOCATIONS)
        }
        chosen |= {"method": self.method, "seed": self.seed, "plugins": plugins}
        for name in ("precision", "deterministic", "attention", "quantization"):
            chosen[name] = values["backbone"][name]
        chosen["evaluation"] = {
            key: values["evaluation"][key] for key in ("match", "max_new_tokens", "rows")
        }
        chosen.get("sampling", {}).pop("keep", None)
        if not self.optim.cooldown:  # as in earlier versions, which had none
            chosen["optim"].pop("cooldown")
        if self.lora.layers is None:
            chosen["lora"].pop("layers")
        if self.template.form == "paper":
            chosen["template"].pop("form")
        if not self.backbone.deterministic:
            chosen.get("sampling", {}).pop("batch", None)
        return chosen

    def _needs(self) -> list[Needs]:
        kinds = anchor_kinds()
        return [kinds[name].needs for name in self.composition.anchors]

    def _build(self, name: str, kind: Any) -> Any:
        if name in BY_TAG and name in type(self).model_fields:
            return kind(getattr(self, name))
        return kind(self._plugged(name, kind))

    def _plugged(self, name: str, kind: Any) -> Config:
        settings: Config = build(kind.Config, self.plugins.get(name, {}), source=f"plugins.{name}")
        return settings


def _samples(need: Needs) -> bool:
    """Whether an anchor needs anything that is sampled from a model."""
    written = need.replay and not need.stored
    drawn = need.curvature or need.prior_curvature or need.positions or need.general
    return written or drawn
