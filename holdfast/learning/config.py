"""The configuration of one trajectory, and which part of it is its identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from holdfast.allocation import ALLOCATIONS
from holdfast.allocation.base import Allocation
from holdfast.allocation.o_lora import OLoRA
from holdfast.allocation.sequential_osrm import SequentialOSRM
from holdfast.anchors import ANCHORS
from holdfast.anchors.base import Anchor
from holdfast.anchors.generative_replay import GenerativeReplay
from holdfast.anchors.online_ewc import OnlineEWC
from holdfast.anchors.self_distillation import SelfDistillation
from holdfast.anchors.synaptic_intelligence import SynapticIntelligence
from holdfast.backbone.adapters import Adapters
from holdfast.backbone.load import Backbone
from holdfast.backbone.sampling import Sampling
from holdfast.core.config import Config, apply_overrides, build
from holdfast.evaluation.recall import Recall
from holdfast.learning.method import Method, known_allocations, known_anchors, parse_method
from holdfast.streams import StreamConfig, Template
from holdfast.streams.load import SIZE_AND_SEED, is_generated

_SECTIONS = {
    "replay": "data",
    "sd": "function",
    "si": "si",
    "online_ewc": "online_ewc",
    "olora": "o_lora",
    "osrm": "sequential_osrm",
}


class Optimisation(Config):
    """AdamW and its schedule, made anew for every task (tab:implementation-hparams).

    min_steps: epochs of a small task repeat until it has had so many steps; not the paper's.
    """

    newer = ("min_steps",)

    epochs: int = Field(10, ge=1)
    min_steps: int = Field(0, ge=0)
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
        """How many epochs a task of so many sequences has."""
        return max(self.epochs, -(-self.min_steps // self.steps_in_epoch(sequences)))


class Keep(Config):
    """What stays on disk beyond what a continuation needs; it changes no number."""

    factors: bool = False  # every task's factors, so that any past model can be rebuilt
    snapshot_every: int = Field(25, ge=1)  # tasks between copies of the dense matrices


class Evaluation(Recall.Config):
    """How recall is scored, and when; what else is measured while learning.

    capability: suites that are asked before the first task, after every ``capability_every``
    tasks and at the horizon. They change no number.
    """

    newer = ("capability", "capability_every")

    rows: Literal["every", "horizon"] = "every"
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
    data: GenerativeReplay.Config = GenerativeReplay.Config()
    function: SelfDistillation.Config = SelfDistillation.Config()
    si: SynapticIntelligence.Config = SynapticIntelligence.Config()
    online_ewc: OnlineEWC.Config = OnlineEWC.Config()
    o_lora: OLoRA.Config = OLoRA.Config()
    sequential_osrm: SequentialOSRM.Config = SequentialOSRM.Config()
    plugins: dict[str, dict[str, Any]] = {}
    evaluation: Evaluation = Evaluation()
    sampling: Sampling = Sampling()
    keep: Keep = Keep()

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
        return self

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
        known = known_anchors()
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
        sections = {"template", "lora", "optim"}
        sections |= {_SECTIONS[name] for name in mechanisms if name in _SECTIONS}
        anchors = known_anchors()
        if any(anchors[name].needs.replay for name in method.anchors):
            sections.add("data")  # by which the learner samples for any data anchor
        chosen = {key: value for key, value in values.items() if key in sections}
        kinds = {**known_allocations(), **anchors}
        plugins = {
            name: self._plugged(name, kinds[name]).model_dump(mode="json")
            for name in mechanisms
            if name not in (*ANCHORS, *ALLOCATIONS)
        }
        chosen |= {"method": self.method, "seed": self.seed, "plugins": plugins}
        chosen["precision"] = self.backbone.precision
        chosen["evaluation"] = {
            key: values["evaluation"][key] for key in ("match", "max_new_tokens", "rows")
        }
        chosen.get("data", {}).pop("keep_samples", None)
        return chosen

    def _build(self, name: str, kind: Any) -> Any:
        section = _SECTIONS.get(name)
        if section is not None:
            return kind(getattr(self, section))
        return kind(self._plugged(name, kind))

    def _plugged(self, name: str, kind: Any) -> Config:
        """The settings of a mechanism that another package brings."""
        settings: Config = build(kind.Config, self.plugins.get(name, {}), source=f"plugins.{name}")
        return settings
