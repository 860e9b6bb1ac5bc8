"""The decoder of Llama, Mistral, Qwen2 and Qwen3 as one function of its low-rank factors.

All else is frozen, so the way back needs no gradient of a matrix, a norm or an embedding.
Written out in both directions it takes a fraction of the operations that the model's own modules
and autograd take. Rows of several batches go through together, without padding; only attention
looks at sequences. What it computes is what the modules compute: :meth:`Decoder.of` tries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.backbone.adapters import Adapters
from holdfast.backbone.low_rank import AdaptedLinear, Seen, SharedInput
from holdfast.backbone.pointwise import (
    gated,
    gated_backward,
    rms_norm,
    rms_norm_backward,
    rotate,
    rotate_backward,
)
from holdfast.backbone.sequences import Batch, collate

_KNOWN = ("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model")
# Rotary tables that depend on nothing but the position.
_STATIC_ROTARY = ("default", "linear", "llama3", "yarn")


class Decoder:
    """The last hidden states of batches of sequences; differentiable in the factors."""

    def __init__(self, model: Any, adapters: Adapters) -> None:
        base = model.base_model
        self.adapters = adapters
        self._embed = base.get_input_embeddings()
        self._rotary = base.rotary_emb
        self._norm = base.norm
        self._layers = [_Layer(layer, adapters) for layer in base.layers]
        self._table: tuple[Tensor, Tensor] | None = None

    @staticmethod
    def of(model: Any, adapters: Adapters) -> Decoder | str:
        """The decoder of a model whose maps are adapted, or why it has none that is known."""
        base, config = model.base_model, model.config
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
        decoder = Decoder(model, adapters)
        return decoder if decoder._agrees(base) else "its states differ from those of the modules"

    def states(self, *batches: Batch) -> tuple[Tensor, ...]:
        """The states after the final norm, [n, d] of each batch, in one pass."""
        if not torch.is_grad_enabled():
            states, _ = self.forward(batches, keep=False)
            return tuple(_by_batch(states, batches))
        differentiable: tuple[Tensor, ...] = _States.apply(self.adapters.parameters, self, batches)  # type: ignore[no-untyped-call]
        return differentiable

    def forward(self, batches: Sequence[Batch], keep: bool) -> tuple[Tensor, _Kept]:
        """The states of all rows, and if ``keep`` what :meth:`backward` needs."""
        ids = _joined([batch.inputs for batch in batches])
        cos, sin = self._angles(batches)
        x = self._embed(ids)
        kept = []
        for layer in self._layers:
            x, seen = layer.forward(x, batches, cos, sin, keep)
            kept.append(seen)
        states, normal, scale = rms_norm(x, self._norm.weight, self._norm.variance_epsilon)
        return states, _Kept(ids, cos, sin, kept if keep else [], normal, scale)

    def backward(self, upstream: Tensor, batches: Sequence[Batch], kept: _Kept) -> Tensor:
        """The gradient of the factors, [P], from that of the states of the first ``batches``."""
        rows = len(upstream)
        cos, sin = kept.cos[:rows], kept.sin[:rows]
        down = rms_norm_backward(upstream, self._norm.weight, kept.normal[:rows], kept.scale[:rows])
        row = self.adapters.seed_row
        for number in reversed(range(len(self._layers))):
            needs_input = number > 0 or row is not None
            layer, seen = self._layers[number], kept.layers[number]
            down = layer.backward(down, batches, cos, sin, seen, needs_input)
        if row is not None:
            chosen = kept.ids[:rows] == self._embed.token
            self.adapters.scratch[-len(row) :] = down[chosen].sum(0)
        return self.adapters.scratch.clone()

    def _angles(self, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
        """cos and sin of every row, [n, 1, head]; the first half of sin carries its minus."""
        longest = max(batch.longest for batch in batches)
        if self._table is None or len(self._table[0]) < longest:
            weight = self._embed.weight
            every = torch.arange(2 * longest, device=weight.device)[None]
            cos, sin = (table[0] for table in self._rotary(weight, every))
            first, second = sin.chunk(2, dim=-1)
            self._table = cos, torch.cat((-first, second), dim=-1)
        positions = _joined([batch.positions for batch in batches])
        cos, sin = (table.index_select(0, positions)[:, None] for table in self._table)
        return cos, sin

    @torch.no_grad()
    def _agrees(self, base: Any) -> bool:
        """Whether a probe of two lengths comes out as the modules have it."""
        self.adapters.evaluating()
        probes = [[1, 2, 3, 4, 5, 6], [7, 8, 9, 1]]
        batch = collate(probes, self._embed.weight.device)
        ours, _ = self.forward([batch], keep=False)
        modules = base(input_ids=batch.grid(batch.inputs), use_cache=False).last_hidden_state
        theirs = batch.packed(modules).float()
        allowed = 0.05 if ours.dtype in (torch.bfloat16, torch.float16) else 1e-4
        return bool((ours.float() - theirs).abs().max() <= allowed * theirs.abs().max())


class _Kept(NamedTuple):
    """What the way back needs of the way there."""

    ids: Tensor
    cos: Tensor
    sin: Tensor
    layers: Sequence[_LayerKept | None]
    normal: Tensor
    scale: Tensor


class _States(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        parameters: Tensor,  # noqa: ARG004 - the layers hold views of it
        decoder: Decoder,
        batches: Sequence[Batch],
    ) -> tuple[Tensor, ...]:
        states, kept = decoder.forward(batches, keep=True)
        ctx.decoder, ctx.batches, ctx.kept = decoder, batches, kept
        ctx.set_materialize_grads(False)
        return tuple(_by_batch(states, batches))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor, None, None]:
        # Trailing batches that a loss does not look at are left out: self-distillation under SI
        # goes back a second time through the current minibatch, and not through the replay.
        active = max(place for place, one in enumerate(upstream) if one is not None) + 1
        batches = ctx.batches[:active]
        width = ctx.kept.normal.shape[-1]
        whole = [
            ctx.kept.normal.new_zeros(len(batch.inputs), width) if one is None else one
            for batch, one in zip(batches, upstream, strict=False)
        ]
        gradient = ctx.decoder.backward(_joined(whole), batches, ctx.kept)
        return gradient, None, None


@dataclass
class _LayerKept:
    """Of one layer: what the norms, the maps, attention and the gate saw."""

    norm: tuple[Tensor, Tensor]
    maps: tuple[Sequence[Seen | None], ...]  # of qkv, o, gate and up, down
    heads: tuple[Tensor, Tensor] | None
    attended: Sequence[tuple[Tensor, tuple[Tensor, ...]]]
    middle: tuple[Tensor, Tensor]
    gate_up: Tensor


class _Layer:
    """One decoder layer, over rows [n, d]."""

    def __init__(self, layer: Any, adapters: Adapters) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._before_attention = layer.input_layernorm
        self._before_mlp = layer.post_attention_layernorm
        self._qkv = _Maps([attention.q_proj, attention.k_proj, attention.v_proj], adapters)
        self._o = _Maps([attention.o_proj], adapters)
        self._gate_up = _Maps([mlp.gate_proj, mlp.up_proj], adapters)
        self._down = _Maps([mlp.down_proj], adapters)
        self._head = attention.head_dim
        self._scaling = attention.scaling
        widths = self._qkv.widths
        self._queries, self._keys = widths[0] // self._head, widths[1] // self._head
        self._head_norm: Tensor | None = None
        self._epsilon = 0.0
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm, attention.k_norm
            weights = [q.weight] * self._queries + [k.weight] * self._keys
            self._head_norm = torch.stack([w.detach() for w in weights])
            self._epsilon = q.variance_epsilon

    def forward(
        self, x: Tensor, batches: Sequence[Batch], cos: Tensor, sin: Tensor, keep: bool
    ) -> tuple[Tensor, _LayerKept | None]:
        rows = [len(batch.inputs) for batch in batches]
        norm = self._before_attention
        y, normal, scale = rms_norm(x, norm.weight, norm.variance_epsilon)
        qkv, seen_qkv = self._qkv.forward(y, rows)
        heads = qkv.view(len(x), -1, self._head)
        rotated, heads_kept = heads[:, : self._queries + self._keys], None
        if self._head_norm is not None:
            rotated, *kept = rms_norm(rotated, self._head_norm, self._epsilon)
            heads_kept = (kept[0], kept[1])
        rotated = rotate(rotated, cos, sin)
        attended, graphs = self._attend(
            rotated, heads[:, self._queries + self._keys :], batches, keep
        )
        mixed, seen_o = self._o.forward(attended, rows)
        x = x + mixed
        norm = self._before_mlp
        y, normal_mlp, scale_mlp = rms_norm(x, norm.weight, norm.variance_epsilon)
        gate_up, seen_gate_up = self._gate_up.forward(y, rows)
        out, seen_down = self._down.forward(gated(gate_up), rows)
        x = x + out
        if not keep:
            return x, None
        seen = (seen_qkv, seen_o, seen_gate_up, seen_down)
        middle = (normal_mlp, scale_mlp)
        return x, _LayerKept((normal, scale), seen, heads_kept, graphs, middle, gate_up)

    def backward(
        self,
        upstream: Tensor,
        batches: Sequence[Batch],
        cos: Tensor,
        sin: Tensor,
        kept: _LayerKept | None,
        needs_input: bool,
    ) -> Tensor:
        """The gradient of x from that of the output, both [n, d]; the maps write the factors'."""
        assert kept is not None
        n = len(upstream)
        seen_qkv, seen_o, seen_gate_up, seen_down = kept.maps
        into = self._down.backward(seen_down, upstream)
        into = self._gate_up.backward(seen_gate_up, gated_backward(into, kept.gate_up[:n]))
        normal, scale = kept.middle
        x = upstream + rms_norm_backward(into, self._before_mlp.weight, normal[:n], scale[:n])
        into = self._o.backward(seen_o, x)
        into_heads = self._attend_backward(into, kept.attended, batches)
        rotated = rotate_backward(into_heads[:, : self._queries + self._keys], cos, sin)
        if kept.heads is not None and self._head_norm is not None:
            normal, scale = kept.heads
            rotated = rms_norm_backward(rotated, self._head_norm, normal[:n], scale[:n])
        values = into_heads[:, self._queries + self._keys :]
        into_qkv = torch.cat((rotated, values), dim=1).view(n, -1)
        into = self._qkv.backward(seen_qkv, into_qkv, needs_input=needs_input)
        if not needs_input:
            return x
        normal, scale = kept.norm
        return x + rms_norm_backward(into, self._before_attention.weight, normal[:n], scale[:n])

    def _attend(
        self, rotated: Tensor, values: Tensor, batches: Sequence[Batch], keep: bool
    ) -> tuple[Tensor, list[tuple[Tensor, tuple[Tensor, ...]]]]:
        """Causal attention within every sequence: [n, heads, head] -> [n, heads x head]."""
        graphs: list[tuple[Tensor, tuple[Tensor, ...]]] = []
        attended = rotated.new_empty(len(rotated), self._queries, self._head)
        for batch, qk, v, into in zip(
            batches, *(_by_batch(one, batches) for one in (rotated, values, attended)), strict=True
        ):
            query, key = batch.grid(qk).transpose(1, 2).split([self._queries, self._keys], dim=1)
            value = batch.grid(v).transpose(1, 2)
            parts = tuple(one.detach().requires_grad_(keep) for one in (query, key, value))
            with torch.set_grad_enabled(keep):
                out = F.scaled_dot_product_attention(
                    parts[0],
                    parts[1],
                    parts[2],
                    is_causal=True,
                    scale=self._scaling,
                    enable_gqa=True,
                )
            batch.pack(out.detach().transpose(1, 2), into)
            graphs.append((out, parts))
        return attended.flatten(1), graphs

    def _attend_backward(
        self,
        upstream: Tensor,
        graphs: Sequence[tuple[Tensor, tuple[Tensor, ...]]],
        batches: Sequence[Batch],
    ) -> Tensor:
        """The gradients of rotated queries and keys, and of values, by head: [n, heads, head]."""
        heads = upstream.view(len(upstream), self._queries, -1)
        whole = heads.new_empty(len(heads), self._queries + 2 * self._keys, self._head)
        for batch, piece, into, (out, parts) in zip(
            batches, _by_batch(heads, batches), _by_batch(whole, batches), graphs, strict=False
        ):
            grid = batch.grid(piece, fill=0).transpose(1, 2)
            into_parts = torch.autograd.grad(out, parts, grid, retain_graph=True)
            # Laid out as the rows are: [sequences, longest, heads, head].
            joined = whole.new_empty(grid.shape[0], grid.shape[2], *whole.shape[1:])
            torch.cat(into_parts, dim=1, out=joined.transpose(1, 2))
            batch.pack(joined, into)
        return whole


def _by_batch(rows: Tensor, batches: Sequence[Batch]) -> Sequence[Tensor]:
    if len(batches) == 1:
        return (rows,)
    parts: Sequence[Tensor] = rows.split_with_sizes([len(batch.inputs) for batch in batches])
    return parts


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


class _Maps:
    """The maps that read one tensor, adapted or not, side by side in the order of ``modules``."""

    def __init__(self, modules: Sequence[Any], adapters: Adapters) -> None:
        self._modules = modules
        self._dropout = adapters.dropout
        self.groups: list[SharedInput] = []
        for module in modules:
            if isinstance(module, AdaptedLinear):
                group = module.group
            else:
                group = SharedInput([module], None, None, adapters.scale, adapters.dropout)
            if group not in self.groups:
                self.groups.append(group)
        width = {
            id(one): width
            for group in self.groups
            for one, width in zip(group.maps, group.widths, strict=True)
        }
        self.widths = [width[id(module)] for module in modules]

    def forward(self, x: Tensor, rows: Sequence[int]) -> tuple[Tensor, list[Seen | None]]:
        """x: [n, d_in], ``rows`` of each batch; returns [n, sum of d_out]."""
        mask = None
        if any(group.open for group in self.groups):
            mask = self._dropout.mask(rows, x)
        outputs, seen = zip(*(group.forward(x, mask) for group in self.groups), strict=True)
        if len(outputs) == 1:
            return outputs[0], list(seen)
        found: dict[int, Tensor] = {}
        for group, output in zip(self.groups, outputs, strict=True):
            found |= zip(map(id, group.maps), output.split(group.widths, dim=1), strict=True)
        return torch.cat([found[id(module)] for module in self._modules], dim=1), list(seen)

    def backward(
        self,
        seen: Sequence[Seen | None],
        upstream: Tensor,
        *,
        needs_input: bool = True,
    ) -> Tensor:
        """The gradient of x from that of the outputs; the groups write that of their factors."""
        if len(self.groups) == 1:
            pieces = [upstream]
        else:
            found = dict(
                zip(map(id, self._modules), upstream.split(self.widths, dim=1), strict=True)
            )
            pieces = [
                torch.cat([found[id(one)] for one in group.maps], dim=1) for group in self.groups
            ]
        into = [
            group.backward(
                None if one is None else one.first(len(piece)),
                piece,
                needs_input=needs_input,
            )
            for group, one, piece in zip(self.groups, seen, pieces, strict=True)
        ]
        present = [one for one in into if one is not None]
        return sum(present[1:], present[0]) if present else upstream
