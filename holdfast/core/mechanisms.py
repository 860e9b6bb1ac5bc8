"""The table of mechanisms that a method tag can name: tags, kinds and titles.

The section of a mechanism's settings in a configuration has its tag as its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VANILLA = "vanilla"  # the tag of a method without mechanisms
SHARED = "shared"  # the allocation rule of a tag that names none
ALIASES = {"ewc": "online_ewc", "merged": "merge"}


@dataclass(frozen=True)
class Mechanism:
    """tag: its name in a method's tag; title: in legends and headings.

    short: its name in a composition such as ``SI + R + M``.
    """

    tag: str
    kind: Literal["anchor", "reference point", "allocation"]
    title: str
    short: str


# In the order in which a tag names them.
MECHANISMS = (
    Mechanism("si", "anchor", "Synaptic Intelligence", "SI"),
    Mechanism("online_ewc", "anchor", "online EWC", "EWC"),
    Mechanism("kfac", "anchor", "Kronecker-factored Fisher", "K-FAC"),
    Mechanism("pairs", "anchor", "paired Fisher", "pairs"),
    Mechanism("sd", "anchor", "self-distillation", "SD"),
    Mechanism("general", "anchor", "general text", "G"),
    Mechanism("replay", "anchor", "generative replay", "R"),
    Mechanism("stored", "reference point", "stored examples", "stored"),
    Mechanism("joint", "reference point", "joint training", "joint"),
    Mechanism(SHARED, "allocation", "shared LoRA", "shared"),
    Mechanism("merge", "allocation", "merged LoRA", "M"),
    Mechanism("olora", "allocation", "O-LoRA", "O-LoRA"),
    Mechanism("osrm", "allocation", "OSRM", "OSRM"),
)
BY_TAG = {mechanism.tag: mechanism for mechanism in MECHANISMS}
# ANCHORS has no reference points; ALLOCATIONS lacks the shared rule, which canonical tags omit.
ANCHORS = tuple(tag for tag, mechanism in BY_TAG.items() if mechanism.kind == "anchor")
ALLOCATIONS = tuple(
    tag for tag, mechanism in BY_TAG.items() if mechanism.kind == "allocation" and tag != SHARED
)
