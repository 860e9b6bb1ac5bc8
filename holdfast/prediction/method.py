"""What a method's mechanisms hold and ask for, as far as memory and time depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.anchors.base import Needs
from holdfast.learning.config import RunConfig
from holdfast.learning.method import anchor_kinds


@dataclass(frozen=True)
class Mechanisms:
    """anchors, rule: names of the method; fate: what becomes of the factors.

    weight_anchors: how many keep a reference and an importance; path: whether the gradient of the
    fit term is taken apart; passes: losses in one backward pass; joint: whether all past items are
    trained again; direct: whether a term depends on the factors directly; writes: whether sequences
    are sampled before every task; replays: whether they, or ``stored`` items, are rehearsed; soft:
    by a divergence; distils: whether the teacher is asked about the task's own sequences.
    curvature: whether S and G of samples are taken before every task; own_curvature: those of a
    task's own sequences after it; general_first: those of general text before the first;
    curvature_kept, curvature_held: how often they are there between tasks, and how often more
    during one; term: how many copies of the factors the quadratic form takes.
    seed_row: whether the replay token's row is trained; unknown: mechanisms of other packages.
    """

    anchors: tuple[str, ...]
    rule: str
    fate: str
    weight_anchors: int
    path: bool
    passes: int
    joint: bool
    direct: bool
    writes: bool
    replays: bool
    stored: int
    soft: bool
    distils: bool
    curvature: bool
    own_curvature: bool
    general_first: bool
    curvature_kept: int
    curvature_held: int
    term: int
    seed_row: bool
    unknown: tuple[str, ...]

    @classmethod
    def of(cls, config: RunConfig) -> Mechanisms:
        """The mechanisms of a configuration's method."""
        method, rule = config.composition, config.allocation()
        needs = [anchor.needs for anchor in config.anchors()]
        replays = any(need.replay for need in needs)
        path = any(need.fit_gradient for need in needs)
        distils = any(need.teacher for need in needs)
        apart = replays and not rule.replay_counts_for_path
        kfac = "kfac" in method.anchors
        general = kfac and config.sampling.general > 0
        own = kfac and config.kfac.source == "own"
        return cls(
            anchors=method.anchors,
            rule=method.allocation,
            fate=rule.fate,
            weight_anchors=len({"si", "online_ewc"} & set(method.anchors)),
            path=path,
            passes=2 if path and (distils or apart) else 1,
            direct=kfac or bool({"si", "online_ewc"} & set(method.anchors)),
            joint=any(need.joint for need in needs),
            writes=any(_samples(need) for need in needs),
            replays=replays,
            stored=max((need.stored for need in needs), default=0),
            soft="replay" in method.anchors and config.data.loss == "soft",
            distils=distils,
            curvature=any(need.curvature for need in needs),
            own_curvature=own,
            general_first=own and general,
            curvature_kept=(1 + general) if own else 0,
            curvature_held=int(general) if own else int(kfac),
            term=(3 if rule.fate != "kept" else 6) if kfac else 0,
            seed_row=replays and config.data.trainable_seed_row,
            unknown=_of_other_packages(config),
        )


def _samples(need: Needs) -> bool:
    return (need.replay and not need.stored) or need.curvature


def _of_other_packages(config: RunConfig) -> tuple[str, ...]:
    method = config.composition
    known = anchor_kinds()
    kinds: dict[str, type] = {name: known[name] for name in method.anchors}
    kinds[method.allocation] = type(config.allocation())
    return tuple(
        name for name, kind in kinds.items() if kind.__module__.split(".")[0] != "holdfast"
    )
