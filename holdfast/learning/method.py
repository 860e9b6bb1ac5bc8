"""A method's tag, such as ``si_sd_replay_merge``, and the mechanisms it composes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.allocation import ALLOCATIONS, Allocation
from holdfast.anchors import ANCHORS, REFERENCE_POINTS, Anchor
from holdfast.core import plugins
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.mechanisms import ALIASES, SHARED, VANILLA


@dataclass(frozen=True)
class Method:
    """A composition of mechanisms. anchors: names in canonical order; allocation: the rule's."""

    anchors: tuple[str, ...]
    allocation: str

    @property
    def tag(self) -> str:
        """The canonical tag: the paper's, for the paper's methods."""
        rule = () if self.allocation == SHARED else (self.allocation,)
        return "_".join((*self.anchors, *rule)) or VANILLA


def parse_method(tag: str) -> Method:
    """Parse a tag: anchors, or one reference point, and at most one rule, in any order.

    Raises HoldfastError for an unknown mechanism, one named twice, two rules or two data anchors.
    """
    anchors, rules = known_anchors(), known_allocations()
    if tag == VANILLA:
        return Method((), SHARED)
    names = _split(tag, [*anchors, *REFERENCE_POINTS, *rules, *ALIASES])
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise HoldfastError(f"method {tag}: {repeated[0]} is named twice; name it once")
    chosen_rules = [name for name in names if name in rules]
    if len(chosen_rules) > 1:
        raise HoldfastError(
            f"method {tag}: {' and '.join(chosen_rules)} are both allocation rules; choose one"
        )
    references = [name for name in names if name in REFERENCE_POINTS]
    if references and len(names) > len(references[:1]) + len(chosen_rules):
        raise HoldfastError(
            f"method {tag}: {references[0]} keeps examples, which makes it a reference point; "
            "name it alone or with an allocation rule"
        )
    data = [name for name in names if name in anchors and anchors[name].needs.replay]
    if len(data) > 1:
        raise HoldfastError(f"method {tag}: {' and '.join(data)} are both data anchors; choose one")
    ordered = tuple(name for name in (*anchors, *REFERENCE_POINTS) if name in names)
    return Method(ordered, chosen_rules[0] if chosen_rules else SHARED)


def known_anchors() -> Mapping[str, type[Anchor]]:
    """The anchors of this package and of installed plug-ins, by name."""
    return plugins.Added(ANCHORS, plugins.ANCHOR_GROUP)


def anchor_kinds() -> Mapping[str, type[Anchor]]:
    """The known anchors and the reference points, by name."""
    return plugins.Added({**ANCHORS, **REFERENCE_POINTS}, plugins.ANCHOR_GROUP)


def known_allocations() -> Mapping[str, type[Allocation]]:
    """The allocation rules of this package and of installed plug-ins, by name."""
    return plugins.Added(ALLOCATIONS, plugins.ALLOCATION_GROUP)


def plugged_in() -> set[str]:
    """The names of all mechanisms that plug-ins add."""
    return plugins.names_added(plugins.ANCHOR_GROUP) | plugins.names_added(plugins.ALLOCATION_GROUP)


def _split(tag: str, mechanisms: Iterable[str]) -> list[str]:
    if not tag:
        raise HoldfastError(f"method is empty; write {VANILLA} or a tag such as replay_merge")
    names: list[str] = []
    longest_first = sorted(mechanisms, key=len, reverse=True)
    rest = f"{tag}_"  # every name is then followed by "_"
    while rest:
        for name in longest_first:
            if rest.startswith(f"{name}_"):
                names.append(ALIASES.get(name, name))
                rest = rest[len(name) + 1 :]
                break
        else:
            word = rest.partition("_")[0]
            known_names = longest_first if "_" in tag else [*longest_first, VANILLA]
            raise HoldfastError(
                f'method {tag}: "{word}" is no mechanism; {did_you_mean(word, known_names)}'
            )
    return names
