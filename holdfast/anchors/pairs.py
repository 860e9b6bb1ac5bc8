"""Paired curvature anchor: the past as positions, at which all maps are seen together.

Through one position of a sequence a change dW of every map changes the sequence's log-likelihood,
to first order, by ``sum over maps of g^T dW x``: x is the map's input there, g the gradient in its
output. With tokens drawn from the model's own distribution, half the mean over positions of its
square is the divergence of the changed model per token, to second order and without products of two
positions of one sequence:

    1/2 mean over positions of (sum over maps of g^T dW x)^2.

Kronecker factors (:mod:`holdfast.anchors.kfac`) average x and g apart from each other and leave out
products of several maps at a position; this form has both, at the positions that it keeps. Those
are drawn uniformly, some from all that was learned and some from general text. dW counts from the
time at which a position was taken, so the loss also pulls back what earlier tasks changed there.
The token at a position can be read from the x of the first layer's maps. Holdfast's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import (
    Anchor,
    Needs,
    State,
    Step,
    TaskEnd,
    TaskStart,
    Update,
    unpacked,
)
from holdfast.core import config as core_config
from holdfast.model.kronecker import Positions


class PairedFisher(Anchor):
    """The form above.

    Its state. For ``learned`` and ``general`` positions, absent until there are some: keys [k], the
    draws by which they were chosen; x and g of every map; offset [k], the sum over maps of
    ``g^T dW x`` over the tasks since they were taken. During a task also ratio: past items and
    general sequences over new items; share: the weight of the learned positions' mean in the form.
    """

    class Config(core_config.Config):
        """positions: the most to keep of all learned sequences; general: the most of general text.
        Longer sequences have more of them, so they count for more than in ``kfac``.

        strength: of the term; it is multiplied by the number of learned items and general sequences
        over the number of new items.
        """

        strength: float = Field(8.0, ge=0)
        positions: int = Field(512, ge=1)
        general: int = Field(512, ge=0)

    needs = Needs(positions=True, updates=True)

    def strength(self, state: State) -> float:
        return super().strength(state) * float(state.get("ratio", 1.0))

    def begin(self, state: State, start: TaskStart) -> State:
        new = dict(state)
        if start.task == 1 and start.positions is not None and self.config.general:
            new |= _state_of("general", start.positions(self.config.general))
        general = start.general if "general_keys" in new else 0
        whole = start.past_items + general
        count = [whole / start.items, start.past_items / max(1, whole)]
        return new | dict(zip(_COUNTS, torch.tensor(count, dtype=torch.float64), strict=True))

    def loss(self, state: State, step: Step) -> Tensor:
        share = float(state.get("share", 0.0))
        form = step.zero()
        for part, weight in (("learned", share), ("general", 1 - share)):
            if f"{part}_keys" in state and weight:
                changed = _changes(state, part, step.updates) + state[f"{part}_offset"]
                form = form + weight * 0.5 * changed.square().mean()
        return form

    def end(self, state: State, end: TaskEnd) -> State:
        new = {key: value for key, value in state.items() if key not in _COUNTS}
        with torch.no_grad():
            for part in _PARTS:
                if f"{part}_keys" in new:
                    key = f"{part}_offset"
                    new[key] = new[key] + _changes(state, part, end.updates)
        assert end.positions is not None
        learned = _state_of("learned", end.positions(self.config.positions))
        if "learned_keys" in new:
            learned = _smallest(new, learned, self.config.positions)
        return new | learned

    def unpack(self, tensors: Mapping[str, Tensor]) -> State:
        single = {*_COUNTS, *(f"{part}_{name}" for part in _PARTS for name in ("keys", "offset"))}
        return unpacked(tensors, _COUNTS, *_PARTS.values(), single=tuple(single))


_COUNTS = ("ratio", "share")
_PARTS = {
    part: tuple(f"{part}_{name}" for name in ("keys", "offset", "x", "g"))
    for part in ("learned", "general")
}


def _state_of(part: str, positions: Positions) -> dict[str, Any]:
    x = next(iter(positions.inputs.values()))
    wide = torch.promote_types(x.dtype, torch.float32)
    return {
        f"{part}_keys": positions.keys,
        f"{part}_offset": x.new_zeros(len(x), dtype=wide),
        f"{part}_x": dict(positions.inputs),
        f"{part}_g": dict(positions.gradients),
    }


def _smallest(first: Mapping[str, Any], second: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Of the learned positions of two states, the ``count`` with the smallest keys."""
    keys = torch.cat([first["learned_keys"], second["learned_keys"]])
    chosen = keys.argsort(stable=True)[:count]

    def among(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b])[chosen]

    return {
        "learned_keys": keys[chosen],
        "learned_offset": among(first["learned_offset"], second["learned_offset"]),
        **{
            part: {name: among(tensor, second[part][name]) for name, tensor in first[part].items()}
            for part in ("learned_x", "learned_g")
        },
    }


def _changes(state: State, part: str, updates: Mapping[str, Update]) -> Tensor:
    return paired_changes(state[f"{part}_x"], state[f"{part}_g"], updates)


def paired_changes(
    inputs: Mapping[str, Tensor], gradients: Mapping[str, Tensor], updates: Mapping[str, Update]
) -> Tensor:
    """The sum over maps of ``g^T dW x`` at every position, in float32 at least: [k].

    inputs, gradients: x [k, d_in] and g [k, d_out] of every map that has an update.
    """
    changes = []
    # B A and B_0 A_0 nearly cancel: half precision would lose the difference.
    with torch.autocast(next(iter(inputs.values())).device.type, enabled=False):
        for name, update in updates.items():
            x, g = inputs[name], gradients[name]
            wide = torch.promote_types(x.dtype, torch.float32)
            read = x.to(wide) @ update.lora_A.to(wide).t()  # [k, rank]
            written = g.to(wide) @ update.lora_B.to(wide)  # [k, rank]
            changes.append(update.scale * (read * written).sum(1))
    return torch.stack(changes).sum(0)
