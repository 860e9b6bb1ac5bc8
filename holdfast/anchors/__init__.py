"""The built-in anchors by their names in a method's tag, and what new anchors are made of.

A package adds its own through the entry-point group ``holdfast.anchors``.
"""

from holdfast.anchors.base import (
    Anchor,
    Change,
    Needs,
    State,
    Step,
    TaskEnd,
    TaskStart,
    Text,
    Tree,
    Update,
)
from holdfast.anchors.general import GeneralDistillation
from holdfast.anchors.kfac import KroneckerFisher
from holdfast.anchors.online_ewc import OnlineEWC
from holdfast.anchors.pairs import PairedFisher
from holdfast.anchors.reference_points import JointTraining, StoredReplay
from holdfast.anchors.replay import GenerativeReplay
from holdfast.anchors.sd import SelfDistillation
from holdfast.anchors.si import SynapticIntelligence
from holdfast.core import plugins
from holdfast.core.config import Config

__all__ = [
    "ANCHORS",
    "REFERENCE_POINTS",
    "Anchor",
    "Change",
    "Config",
    "Needs",
    "State",
    "Step",
    "TaskEnd",
    "TaskStart",
    "Text",
    "Tree",
    "Update",
    "register",
]

#: The built-in anchors that a method composes, by the names in its tag.
ANCHORS: dict[str, type[Anchor]] = {
    "si": SynapticIntelligence,
    "online_ewc": OnlineEWC,
    "kfac": KroneckerFisher,
    "pairs": PairedFisher,
    "sd": SelfDistillation,
    "general": GeneralDistillation,
    "replay": GenerativeReplay,
}

#: The built-in reference points: they keep examples, so a tag does not compose them with anchors.
REFERENCE_POINTS: dict[str, type[Anchor]] = {"stored": StoredReplay, "joint": JointTraining}


def register(name: str, kind: type[Anchor]) -> None:
    """Register an anchor in this process, for example one that a notebook defines.

    name: its name in a method's tag; a name that was registered before gets the new class. Other
    processes, such as the workers of a study, know a plug-in only by its entry point.
    Raises HoldfastError if ``kind`` is no anchor, or the name is taken or impossible in a tag.
    """
    plugins.register(plugins.ANCHOR_GROUP, name, kind, Anchor)
