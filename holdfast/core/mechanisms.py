"""The mechanisms that a method's tag composes: one table, for whoever names or configures them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VANILLA = "vanilla"  # the tag of a method without mechanisms
SHARED = "shared"  # the allocation rule of a tag that names none
ALIASES = {"ewc": "online_ewc", "merged": "merge"}


@dataclass(frozen=True)
class Mechanism:
    """tag: in a method's; section: of its settings in a configuration, None where it has none.

    title: in a legend or a heading; short: in a composition such as ``SI + R + M``.
    """

    tag: str
    kind: Literal["anchor", "reference point", "allocation"]
    section: str | None
    title: str
    short: str


# In the order in which a tag names them.
MECHANISMS = (
    Mechanism("si", "anchor", "si", "Synaptic Intelligence", "SI"),
    Mechanism("online_ewc", "anchor", "online_ewc", "online EWC", "EWC"),
    Mechanism("kfac", "anchor", "kfac", "Kronecker-factored Fisher", "K-FAC"),
    Mechanism("sd", "anchor", "function", "self-distillation", "SD"),
    Mechanism("replay", "anchor", "data", "generative replay", "R"),
    Mechanism("stored", "reference point", "stored", "stored examples", "stored"),
    Mechanism("joint", "reference point", None, "joint training", "joint"),
    Mechanism(SHARED, "allocation", None, "shared LoRA", "shared"),
    Mechanism("merge", "allocation", None, "merged LoRA", "M"),
    Mechanism("olora", "allocation", "o_lora", "O-LoRA", "O-LoRA"),
    Mechanism("osrm", "allocation", "sequential_osrm", "OSRM", "OSRM"),
)
BY_TAG = {one.tag: one for one in MECHANISMS}
SECTIONS = {one.tag: one.section for one in MECHANISMS if one.section is not None}
# Those that a tag may name.
ANCHORS = tuple(one.tag for one in MECHANISMS if one.kind == "anchor")
ALLOCATIONS = tuple(one.tag for one in MECHANISMS if one.kind == "allocation" and one.tag != SHARED)
