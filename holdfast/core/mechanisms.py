"""The table of mechanisms that a method tag can name: tags, configuration sections, titles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VANILLA = "vanilla"  # the tag of a method without mechanisms
SHARED = "shared"  # the allocation rule of a tag that names none
ALIASES = {"ewc": "online_ewc", "merged": "merge"}


@dataclass(frozen=True)
class Mechanism:
    """tag: its name in a method's tag; section: its configuration section, None without settings.

    title: its name in legends and headings; short: in a composition such as ``SI + R + M``.
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
# ANCHORS has no reference points; ALLOCATIONS lacks the shared rule, which canonical tags omit.
ANCHORS = tuple(one.tag for one in MECHANISMS if one.kind == "anchor")
ALLOCATIONS = tuple(one.tag for one in MECHANISMS if one.kind == "allocation" and one.tag != SHARED)
