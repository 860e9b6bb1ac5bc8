"""The configuration of one trajectory, and which part of it is its identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from holdfast.allocation import ALLOCATIONS
from holdfast.allocation.base import Allocation
from holdfast.allocation.o_lora import OLoRA
from holdfast.allocation.sequential_osrm import SequentialOSRM
from holdfast.anchors import ANCHORS, REFERENCE_POINTS
from holdfast.anchors.base import Anchor
from holdfast.anchors.generative_replay import GenerativeReplay
from holdfast.anchors.kfac import KroneckerFisher
from holdfast.anchors.online_ewc import OnlineEWC
from holdfast.anchors.reference_points import StoredReplay
from holdfast.anchors.self_distillation import SelfDistillation
from holdfast.anchors.synaptic_intelligence import SynapticIntelligence
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.curvature import CurvatureConfig
from holdfast.backbone.generation.sampling import Sampling
from holdfast.backbone.model import Backbone
from holdfast.core.config import Config, apply_overrides, build
from holdfast.core.mechanisms import SECTIONS
from holdfast.evaluation.recall import Recall
from holdfast.learning.method import (
    Method,
    anchor_kinds,
    known_allocations,
    parse_method,
    plugged_in,
)
from holdfast.streams import StreamConfig, Template
from holdfast.streams.load import SIZE_AND_SEED, is_generated


class Optimisation(Config):
    """AdamW and its schedule, made anew for every task (tab:implementation-hparams).

    Not the paper's: min_steps, epochs repeat until a task has had so many; acquired, epochs repeat
    until this share of the tokens of the task's own answers was the likeliest one in the passes of
    an epoch, and at most until max_steps.
    """

    epochs: int = Field(10, ge=1)
    min_steps: int = Field(0, ge=0)
    acquired: float | None = Field(None, gt=0, le=1)
    max_steps: int = Field(400, ge=1)
    batch_size: int = Field(8, ge=1)  # sequences a minibatch
    accumulation: int = Field(1, ge=1)  # minibatches a step
    lr: float = Field(5e-4, gt=0, le=1)
    weight_decay: float = Field(0.01, ge=0)
    clip: float = Field(1.0, gt=0)  # global gradient norm
    warmup: float = Field(0.05, ge=0, le=1)  # share of a task's steps

    def steps_in_epoch(self, sequences: int) -> int:
        """How many steps an epoch over so many sequences has."""
        minibatches = -(-sequences // self.batch_size)
        return -(-minibatches // self.accumulation)

    def epochs_of(self, sequences: int) -> int:
        """How many epochs a task of so many sequences has at least."""
        return max(self.epochs, -(-self.min_steps // self.steps_in_epoch(sequences)))

    def most_epochs_of(self, sequences: int) -> int:
        """How many it has at most: while it is not acquired, where that is asked."""
        least = self.epochs_of(sequences)
        if self.acquired is None:
            return least
        return max(least, -(-self.max_steps // self.steps_in_epoch(sequences)))


class Balance(Config):
    """How much the questions and the answers of a new task weigh in its loss; not the paper's.

    share: tokens of questions weigh the new items' share among all items learned, and the replay
    loss the rest, whatever data.weight says, so that each item keeps an equal share of what the
    model writes, whether a task brings three items or three hundred. questions: at most so much,
    for methods without replay; answers: what tokens of answers weigh, None as much as questions.
    Without a past to hold, all weigh 1.
    """

    share: bool = False
    questions: float | None = Field(None, gt=0, le=1)
    answers: float | None = Field(None, gt=0, le=1)


class Keep(Config):
    """What stays on disk beyond what a continuation needs; it changes no number."""

    factors: bool = False  # every task's factors, so that any past model can be rebuilt
    snapshot_every: int = Field(25, ge=1)  # tasks between copies of the dense matrices


class Evaluation(Recall.Config):
    """How recall is scored, and when; what else is measured while learning.

    rows: after every task, after every so many and at the horizon, or at the horizon alone. A task
    is asked when it has just been learned in any case but the last.
    capability: suites that are asked before the first task, after every ``capability_every``
    tasks and at the horizon. They change no number.
    """

    rows: Literal["every", "horizon"] | PositiveInt = "every"
    capability: tuple[Literal["text"], ...] = ()
    capability_every: int = Field(10, ge=1)


class RunConfig(Config):
    """Everything that one trajectory is made of; the defaults are the paper's settings."""

    method: str = "vanilla"
    seed: int = Field(42, ge=0)
    stream: StreamConfig = StreamConfig()
    template: Template.Config = Template.Config()
    backbone: Backbone.Config = Backbone.Config()
    lora: Adapters.Config = Adapters.Config()
    optim: Optimisation = Optimisation()
    balance: Balance = Balance()
    sampling: Sampling = Sampling()
    curvature: CurvatureConfig = CurvatureConfig()
    data: GenerativeReplay.Config = GenerativeReplay.Config()
    function: SelfDistillation.Config = SelfDistillation.Config()
    si: SynapticIntelligence.Config = SynapticIntelligence.Config()
    online_ewc: OnlineEWC.Config = OnlineEWC.Config()
    kfac: KroneckerFisher.Config = KroneckerFisher.Config()
    stored: StoredReplay.Config = StoredReplay.Config()
    o_lora: OLoRA.Config = OLoRA.Config()
    sequential_osrm: SequentialOSRM.Config = SequentialOSRM.Config()
    plugins: dict[str, dict[str, Any]] = {}
    evaluation: Evaluation = Evaluation()
    keep: Keep = Keep()

    @model_validator(mode="before")
    @classmethod
    def _sections_of_plugins(cls, values: Any) -> Any:
        """A mechanism of another package has a section of its own name, as those of this one."""
        if not isinstance(values, Mapping) or values.keys() <= cls.model_fields.keys():
            return values
        own = plugged_in() - cls.model_fields.keys()
        sections = {name: values[name] for name in values if name in own}
        rest = {name: values[name] for name in values if name not in own}
        return {**rest, "plugins": {**values.get("plugins", {}), **sections}}

    @field_validator("method")
    @classmethod
    def _canonical(cls, tag: str) -> str:
        return parse_method(tag).tag

    @model_validator(mode="after")
    def _makes_sense(self) -> RunConfig:
        unused = sorted(
            set(self.plugins) - {*self.composition.anchors, self.composition.allocation}
        )
        if unused:
            raise ValueError(
                f"plugins.{unused[0]}: method {self.method} does not use it; remove it"
            )
        truncates = self.data.loss == "cross_entropy" and self.data.vocabulary is not None
        if truncates and "replay" in self.composition.anchors:
            raise ValueError(
                "data.vocabulary truncates the soft loss, data.loss=cross_entropy has none; "
                "set one of the two"
            )
        self._check_balance()
        return self

    def _check_balance(self) -> None:
        needs = [anchor_kinds()[name].needs for name in self.composition.anchors]
        if self.balance.questions is not None and any(need.replay for need in needs):
            raise ValueError(
                f"balance.questions: data.weight says it for method {self.method}; remove it"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any], overrides: Iterable[str] = ()) -> RunConfig:
        """Build from nested values and dotted overrides; HoldfastError in one line if wrong.

        An override that names a stored stream in place of a generated one takes all of it: how
        much of the generated one was wanted does not count.
        """
        overrides = list(overrides)
        named = apply_overrides({}, overrides).get("stream")
        instead = named.get("name") if isinstance(named, dict) else None
        given = values.get("stream") or {}
        # What is no section, or no name, is left to the validation, which says so.
        stored = instead and not is_generated(instead)
        if stored and isinstance(given, Mapping) and is_generated(given.get("name")):
            left = {key: given[key] for key in given if key not in SIZE_AND_SEED}
            values = {**values, "stream": left}
        return build(cls, apply_overrides(values, overrides), source="configuration")

    @property
    def composition(self) -> Method:
        """The mechanisms that the method's tag names."""
        return parse_method(self.method)

    def anchors(self) -> list[Anchor]:
        """The method's anchors, new and without a past."""
        known = anchor_kinds()
        return [self._build(name, known[name]) for name in self.composition.anchors]

    def allocation(self) -> Allocation:
        """The method's allocation rule, new and without a past."""
        name = self.composition.allocation
        rule: Allocation = self._build(name, known_allocations()[name])
        return rule

    def numbers(self) -> dict[str, Any]:
        """The settings that change the numbers of this method, and no others.

        Left out: paths and names (the stream and the backbone have fingerprints), the horizon,
        speed switches, and the settings of mechanisms that the method does not use.
        """
        values = self.model_dump(mode="json")
        method = self.composition
        mechanisms = (*method.anchors, method.allocation)
        sections = {"template", "lora", "optim", "balance"}
        sections |= {SECTIONS[name] for name in mechanisms if name in SECTIONS}
        anchors = anchor_kinds()
        needs = [anchors[name].needs for name in method.anchors]
        if any(need.replay for need in needs):
            sections.add("data")  # of which the learner takes w and the minibatches
        if any((need.replay and not need.stored) or need.curvature for need in needs):
            sections.add("sampling")
        if any(need.curvature for need in needs):
            sections.add("curvature")
        chosen = {key: value for key, value in values.items() if key in sections}
        kinds = {**known_allocations(), **anchors}
        plugins = {
            name: self._plugged(name, kinds[name]).model_dump(mode="json")
            for name in mechanisms
            if name not in (*ANCHORS, *REFERENCE_POINTS, *ALLOCATIONS)
        }
        chosen |= {"method": self.method, "seed": self.seed, "plugins": plugins}
        chosen["precision"] = self.backbone.precision
        chosen["evaluation"] = {
            key: values["evaluation"][key] for key in ("match", "max_new_tokens", "rows")
        }
        for speed in ("keep", "batch"):
            chosen.get("sampling", {}).pop(speed, None)
        return chosen

    def _build(self, name: str, kind: Any) -> Any:
        section = SECTIONS.get(name)
        if section is not None:
            return kind(getattr(self, section))
        return kind(self._plugged(name, kind))

    def _plugged(self, name: str, kind: Any) -> Config:
        """The settings of a mechanism that another package brings."""
        settings: Config = build(kind.Config, self.plugins.get(name, {}), source=f"plugins.{name}")
        return settings
