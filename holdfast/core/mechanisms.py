"""The table of mechanisms that a method tag can name: tags, kinds and titles.

The section of a mechanism's settings in a configuration has its tag as its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.core.config import as_override

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
# A value with blanks is JSON, with the blanks inside its quotes.
_SETTING = re.compile(r"""[^ =]+=(?:(?=["[{])(?:"(?:\\.|[^"\\])*"|[^ "])+|[^ ]*)""")


def name_with_settings(tag: str, settings: Mapping[str, Any]) -> str:
    """A method's name in tables, its tag and dotted settings: ``merge optim.lr=0.001``."""
    return " ".join((tag, *(as_override(*pair) for pair in settings.items())))


def tag_of(name: str) -> str:
    """The tag in a method's name: ``merge`` of ``merge optim.lr=0.001``."""
    return name.partition(" ")[0]


def has(name: str, mechanism: str) -> bool:
    """Whether a method's name, with or without settings, contains a mechanism."""
    return f"_{mechanism}_" in f"_{tag_of(name)}_"


def settings_of(name: str) -> list[str]:
    """The settings in a method's name: ``optim.lr=0.001`` of ``merge optim.lr=0.001``."""
    return _SETTING.findall(name)
