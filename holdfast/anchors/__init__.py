"""Anchors: what an update should preserve. By the names that a method's tag uses.

A package adds its own through the entry-point group ``holdfast.anchors``.
"""

from holdfast.anchors.base import (
    Anchor,
    Needs,
    StepChange,
    StepView,
    TaskEnd,
    TaskStart,
    Update,
)
from holdfast.anchors.generative_replay import GenerativeReplay
from holdfast.anchors.kfac import KroneckerFisher
from holdfast.anchors.online_ewc import OnlineEWC
from holdfast.anchors.reference_points import JointTraining, StoredReplay
from holdfast.anchors.self_distillation import SelfDistillation
from holdfast.anchors.synaptic_intelligence import SynapticIntelligence
from holdfast.core.config import Config

__all__ = [
    "ANCHORS",
    "REFERENCE_POINTS",
    "Anchor",
    "Config",
    "Needs",
    "StepChange",
    "StepView",
    "TaskEnd",
    "TaskStart",
    "Update",
]

#: The built-in anchors that a method composes, by the names in its tag.
ANCHORS: dict[str, type[Anchor]] = {
    "si": SynapticIntelligence,
    "online_ewc": OnlineEWC,
    "kfac": KroneckerFisher,
    "sd": SelfDistillation,
    "replay": GenerativeReplay,
}

#: The built-in reference points: they keep examples, so a tag does not compose them with anchors.
REFERENCE_POINTS: dict[str, type[Anchor]] = {"stored": StoredReplay, "joint": JointTraining}
