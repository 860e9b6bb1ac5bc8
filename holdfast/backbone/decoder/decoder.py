"""The decoder of Llama, Mistral, Qwen2 and Qwen3 as one function of its low-rank factors.

All else is frozen, so the backward pass needs no gradient of a matrix, a norm or an embedding.
Written out, both passes take a fraction of the operations of the model's own modules under
autograd. Rows of several batches go through together, without padding; only attention is by
sequence. :meth:`Decoder.of` checks that it computes what the modules compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.decoder.layer import Layer, LayerInput, LayerKept, LossRows
from holdfast.backbone.decoder.pointwise import Pointwise, compiled, pointwise_on
from holdfast.backbone.sequences import Batch, by_batch, collate

_KNOWN = ("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model")
# Rotary tables that depend on nothing but the position.
_STATIC_ROTARY = ("default", "linear", "llama3", "yarn")


class Decoder:
    """The last hidden states of batches of sequences, and their gradient in the factors."""

    def __init__(
        self,
        model: Any,
        adapters: Adapters,
        parts: Pointwise,
        *,
        checkpointing: bool = False,
        short: bool = True,
    ) -> None:
        """short: take plain products for the attention of short sequences, where that pays."""
        base = model.base_model
        self.adapters = adapters
        self._checkpointing = checkpointing
        self._parts = parts
        self._embed = base.get_input_embeddings()
        self._rotary = base.rotary_emb
        self._norm = base.norm
        self._layers = [Layer(layer, adapters, parts, short=short) for layer in base.layers]
        self._table: tuple[Tensor, Tensor] | None = None

    @staticmethod
    def of(
        model: Any,
        adapters: Adapters,
        *,
        fused: bool = False,
        checkpointing: bool = False,
        attention: str = "auto",
    ) -> Decoder | str:
        """The decoder of a model whose maps are adapted, or the reason why it has none.

        fused: compile the element-wise parts, for a device where that pays; checkpointing: keep
        only each layer's input for the backward pass, which computes the layer a second time;
        attention: as in ``Backbone.Config``; ``sdpa`` is torch's kernel at every length.
        """
        reason = Decoder.reason_against(model, attention)
        if reason is not None:
            return reason
        parts = compiled() if fused else pointwise_on(adapters.parameters.device)
        short = attention == "auto"
        decoder = Decoder(model, adapters, parts, checkpointing=checkpointing, short=short)
        agrees = decoder._agrees(model.base_model)
        return decoder if agrees else "its states differ from those of the modules"

    @staticmethod
    def reason_against(model: Any, attention: str) -> str | None:
        """Why a model's own modules make its passes, as far as its configuration tells.

        attention: as in ``Backbone.Config``.
        """
        base, config = model.base_model, model.config
        if attention not in ("auto", "sdpa"):
            return f"backbone.attention = {attention}, which is theirs"
        if type(base).__name__ not in _KNOWN:
            return f"{type(base).__name__} is none of {', '.join(_KNOWN)}"
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"} or (
            type(base).__name__ == "MistralModel" and config.sliding_window is not None
        ):
            return "its attention is not the plain causal one"
        if config.hidden_act != "silu" or getattr(config, "attention_dropout", 0.0):
            return "its activation or its dropout is another"
        if base.rotary_emb.rope_type not in _STATIC_ROTARY:
            return f"its rotary positions are {base.rotary_emb.rope_type}"
        return None

    @torch.no_grad()
    def states(self, *batches: Batch) -> tuple[Tensor, ...]:
        """The states after the final norm, [n, d] of each batch, in one pass."""
        states, _ = self.forward(batches, keep=False)
        return tuple(by_batch(states, batches))

    @torch.no_grad()
    def forward(self, batches: Sequence[Batch], keep: bool) -> tuple[Tensor, Kept]:
        """The states of all rows, and if ``keep`` what :meth:`backward` needs."""
        ids = _joined([batch.inputs for batch in batches])
        positions = _joined([batch.positions for batch in batches])
        cos, sin = self._angles(positions, max(batch.longest for batch in batches))
        x = self._embed(ids)
        kept: list[LayerKept | LayerInput | None] = []
        rows = [len(batch.inputs) for batch in batches]
        for layer in self._layers:
            attention = partial(layer.attend_within, batches=batches, keep=keep)
            before = None
            if keep and self._checkpointing:
                before = LayerInput(x, self.adapters.dropout.mark())
            x, seen = layer.forward(x, rows, cos, sin, attention, keep)
            kept.append(before or seen)
            del seen  # else it lives beside the next layer's
        states, norm = self._parts.rms_norm(x, self._norm.weight, self._norm.variance_epsilon)
        return states, Kept(ids, cos, sin, kept if keep else [], norm)

    @torch.no_grad()
    def backward(
        self, upstreams: Sequence[Sequence[Tensor]], batches: Sequence[Batch], kept: Kept
    ) -> list[Tensor]:
        """The gradient of the factors, [P], of each of several losses, in one backward pass.

        upstreams: for each loss, its gradient in the states of the first batches, as many as it
        reads. The next call overwrites what this one returned.
        """
        losses = LossRows(batches, [len(one) for one in upstreams])
        gradients = self.adapters.scratch(len(upstreams))
        upstream = _joined([state for one in upstreams for state in one])
        norm = self._norm
        down = self._parts.rms_norm_backward(
            upstream, norm.weight, norm.variance_epsilon, *map(losses.repeat, kept.norm)
        )
        angles = losses.repeat(kept.cos), losses.repeat(kept.sin)
        row = self.adapters.seed_row
        for number in reversed(range(len(self._layers))):
            needs_input = number > 0 or row is not None
            down = self._layers[number].backward(
                down, losses, *angles, self._seen(number, kept, batches), needs_input
            )
        if row is not None:
            for one, gradient in zip(down.split(losses.rows), gradients, strict=True):
                chosen = kept.ids[: len(one)] == self._embed.token
                gradient[-len(row) :] = one[chosen].sum(0)
        return gradients

    def _seen(self, number: int, kept: Kept, batches: Sequence[Batch]) -> LayerKept | None:
        """What one layer needs to go back, which is computed again where it was not kept."""
        known = kept.layers[number]
        if not isinstance(known, LayerInput):
            return known
        layer, rows = self._layers[number], [len(batch.inputs) for batch in batches]
        attention = partial(layer.attend_within, batches=batches, keep=True)
        with self.adapters.repeating(known.marks):
            _, seen = layer.forward(known.x, rows, kept.cos, kept.sin, attention, keep=True)
        return seen

    @torch.no_grad()
    def step(
        self,
        ids: Tensor,
        cache: Cache,
        position: Tensor,
        room: int,
        hidden: Tensor | None = None,
    ) -> Tensor:
        """The states [rows, d] of one more token a row, ids [rows].

        position: one for all rows, [1], or of each, [rows]; room: above every position; hidden: as
        in :meth:`Layer.attend_cached`.
        """
        cos, sin = self._angles(position, room)
        x = self._embed(ids)
        for number, layer in enumerate(self._layers):
            attention = partial(layer.attend_cached, cache=cache, number=number, hidden=hidden)
            x, _ = layer.forward(x, [len(ids)], cos, sin, attention, keep=False)
        states, _ = self._parts.rms_norm(x, self._norm.weight, self._norm.variance_epsilon)
        return states

    def _angles(self, positions: Tensor, room: int) -> tuple[Tensor, Tensor]:
        """cos and sin at ``positions`` [n] below ``room``, [n, 1, head].

        The first half of sin carries its minus.
        """
        if self._table is None or len(self._table[0]) < room:
            weight = self._embed.weight
            every = torch.arange(2 * room, device=weight.device)[None]
            cos, sin = (table[0] for table in self._rotary(weight, every))
            first, second = sin.chunk(2, dim=-1)
            self._table = cos, torch.cat((-first, second), dim=-1)
        cos, sin = (table.index_select(0, positions)[:, None] for table in self._table)
        return cos, sin

    @torch.no_grad()
    def _agrees(self, base: Any) -> bool:
        """Whether the states of a probe, two sequences of different length, equal the modules'."""
        probes = [[1, 2, 3, 4, 5, 6], [7, 8, 9, 1]]
        batch = collate(probes, self._embed.weight.device)
        with self.adapters.answering():
            ours, _ = self.forward([batch], keep=False)
            modules = base(input_ids=batch.grid(batch.inputs), use_cache=False).last_hidden_state
        theirs = batch.packed(modules).float()
        allowed = 0.05 if ours.dtype in (torch.bfloat16, torch.float16) else 1e-4
        return bool((ours.float() - theirs).abs().max() <= allowed * theirs.abs().max())


class Kept(NamedTuple):
    """What the forward pass keeps for the backward pass."""

    ids: Tensor
    cos: Tensor
    sin: Tensor
    layers: Sequence[LayerKept | LayerInput | None]
    norm: tuple[Tensor, ...]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
