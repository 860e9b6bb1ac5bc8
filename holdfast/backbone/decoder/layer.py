"""One layer of a Llama-like decoder over rows [n, d], forwards and backwards.

Rows of several batches go through together, without padding; only attention is by sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import Cache

from holdfast.backbone.adapters.dropout import Marks
from holdfast.backbone.adapters.low_rank import AdaptedLinear, Seen, SharedInput
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.decoder.attention import Attended, attend, attend_backward
from holdfast.backbone.decoder.pointwise import Pointwise
from holdfast.backbone.sequences import Batch, by_batch, by_count, first

Attend = Callable[[Tensor, Tensor], tuple[Tensor, list[Attended]]]


@dataclass
class LayerKept:
    """What one layer keeps for the backward pass: of its norms, maps, attention and gate."""

    norm: tuple[Tensor, ...]
    maps: tuple[Sequence[Seen | None], ...]  # of qkv, o, gate and up, down
    heads: tuple[Tensor, ...]
    attended: Sequence[Attended]
    middle: tuple[Tensor, ...]
    gate_up: Tensor


@dataclass
class LayerInput:
    """What one layer keeps instead when it is recomputed: x, [n, d], and where the masks stood."""

    x: Tensor
    marks: Marks


class LossRows:
    """The rows of several losses in one backward pass, one loss after the other.

    A loss reads the first so many batches of the forward pass, and so the first so many rows.
    rows: of each loss; batches: of each loss, one after another.
    """

    def __init__(self, batches: Sequence[Batch], counts: Sequence[int]) -> None:
        """counts: how many of the forward pass's ``batches`` each loss reads."""
        self.batches = [batch for count in counts for batch in batches[:count]]
        self.rows = [sum(len(batch.inputs) for batch in batches[:count]) for count in counts]
        self._counts = counts

    def repeat(self, kept: Tensor) -> Tensor:
        """What the forward pass kept of its rows, [n, ...], repeated for each loss."""
        if len(self.rows) == 1:
            return first(kept, self.rows[0])
        return torch.cat([first(kept, count) for count in self.rows])

    def graphs(self, kept: Sequence[Attended]) -> list[Attended]:
        """What the forward pass kept of each batch, repeated for each loss."""
        return [one for count in self._counts for one in kept[:count]]


class Layer:
    """One decoder layer, over rows [n, d]."""

    def __init__(
        self, layer: Any, adapters: Adapters, parts: Pointwise, *, short: bool = True
    ) -> None:
        """short: as in :func:`attend`."""
        attention, mlp = layer.self_attn, layer.mlp
        self._parts = parts
        self._short = short
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
        self,
        x: Tensor,
        rows: Sequence[int],
        cos: Tensor,
        sin: Tensor,
        attention: Attend,
        keep: bool,
    ) -> tuple[Tensor, LayerKept | None]:
        """x: [n, d], ``rows`` of each batch; keep: store what :meth:`backward` needs.

        attention: :meth:`attend_within` sequences or :meth:`attend_cached`, bound to these.
        """
        norm = self._before_attention
        y, kept_norm = self._parts.rms_norm(x, norm.weight, norm.variance_epsilon)
        qkv, seen_qkv = self._qkv.forward(y, rows)
        heads = qkv.view(len(x), -1, self._head)
        rotated = heads[:, : self._queries + self._keys]
        kept_heads: tuple[Tensor, ...] = ()
        if self._head_norm is not None:
            rotated, kept_heads = self._parts.rms_norm(rotated, self._head_norm, self._epsilon)
        rotated = self._parts.rotate(rotated, cos, sin)
        attended, graphs = attention(rotated, heads[:, self._queries + self._keys :])
        mixed, seen_o = self._o.forward(attended, rows)
        x = x + mixed
        norm = self._before_mlp
        y, kept_middle = self._parts.rms_norm(x, norm.weight, norm.variance_epsilon)
        gate_up, seen_gate_up = self._gate_up.forward(y, rows)
        out, seen_down = self._down.forward(self._parts.gated(gate_up), rows)
        x = x + out
        if not keep:
            return x, None
        seen = (seen_qkv, seen_o, seen_gate_up, seen_down)
        return x, LayerKept(kept_norm, seen, kept_heads, graphs, kept_middle, gate_up)

    def backward(
        self,
        upstream: Tensor,
        losses: LossRows,
        cos: Tensor,
        sin: Tensor,
        kept: LayerKept | None,
        needs_input: bool,
    ) -> Tensor:
        """The gradient of x from that of the output, both [n, d]; the maps write their factors'."""
        assert kept is not None
        seen_qkv, seen_o, seen_gate_up, seen_down = kept.maps
        into = self._down.backward(seen_down, upstream, losses)
        into = self._gate_backward(into, losses, kept.gate_up)
        into = self._gate_up.backward(seen_gate_up, into, losses)
        x = upstream + self._normal_backward(into, losses, self._before_mlp, kept.middle)
        into = self._o.backward(seen_o, x, losses)
        into_heads = self._attend_backward(into, losses.graphs(kept.attended), losses.batches)
        rotated = self._parts.rotate_backward(into_heads[:, : self._queries + self._keys], cos, sin)
        if self._head_norm is not None:
            rotated = self._parts.rms_norm_backward(
                rotated, self._head_norm, self._epsilon, *map(losses.repeat, kept.heads)
            )
        values = into_heads[:, self._queries + self._keys :]
        into_qkv = torch.cat((rotated, values), dim=1).view(len(upstream), -1)
        into = self._qkv.backward(seen_qkv, into_qkv, losses, needs_input=needs_input)
        if not needs_input:
            return x
        return x + self._normal_backward(into, losses, self._before_attention, kept.norm)

    def _gate_backward(self, upstream: Tensor, losses: LossRows, gate_up: Tensor) -> Tensor:
        into = upstream.new_empty(len(upstream), gate_up.shape[1])
        for piece, result in zip(
            by_count(upstream, losses.rows), by_count(into, losses.rows), strict=True
        ):
            self._parts.gated_backward(piece, first(gate_up, len(piece)), result)
        return into

    def _normal_backward(
        self, upstream: Tensor, losses: LossRows, norm: Any, kept: tuple[Tensor, ...]
    ) -> Tensor:
        again = map(losses.repeat, kept)
        return self._parts.rms_norm_backward(upstream, norm.weight, norm.variance_epsilon, *again)

    def attend_cached(
        self, rotated: Tensor, values: Tensor, *, cache: Cache, number: int, hidden: Tensor | None
    ) -> tuple[Tensor, list[Attended]]:
        """Attention of one new token a row to itself and the cached ones.

        number: of this layer; hidden: the additive mask, minus infinity at positions of the cache
        that a row must not see, [1 or rows, 1, 1, room].
        """
        query, key = rotated.split([self._queries, self._keys], dim=1)
        keys, seen = cache.update(key[:, :, None], values[:, :, None], number)
        # The queries that share a key take the dimension of the positions.
        grouped = query.reshape(len(query), self._keys, -1, self._head)
        out = F.scaled_dot_product_attention(grouped, keys, seen, hidden, scale=self._scaling)
        return out.reshape(len(query), -1), []

    def attend_within(
        self, rotated: Tensor, values: Tensor, *, batches: Sequence[Batch], keep: bool
    ) -> tuple[Tensor, list[Attended]]:
        """Causal attention within every sequence: [n, heads, head] -> [n, heads x head]."""
        graphs: list[Attended] = []
        attended = rotated.new_empty(len(rotated), self._queries, self._head)
        for batch, qk, v, into in zip(
            batches, *(by_batch(one, batches) for one in (rotated, values, attended)), strict=True
        ):
            query, key = batch.grid(qk).transpose(1, 2).split([self._queries, self._keys], dim=1)
            value = batch.grid(v).transpose(1, 2)
            found = attend(query, key, value, self._scaling, keep=keep, short=self._short)
            batch.pack(found.out.detach().transpose(1, 2), into)
            graphs.append(found)
        return attended.flatten(1), graphs

    def _attend_backward(
        self,
        upstream: Tensor,
        graphs: Sequence[Attended],
        batches: Sequence[Batch],
    ) -> Tensor:
        """The gradients of rotated queries and keys, and of values, by head: [n, heads, head]."""
        heads = upstream.view(len(upstream), self._queries, -1)
        whole = heads.new_empty(len(heads), self._queries + 2 * self._keys, self._head)
        for batch, piece, into, found in zip(
            batches, by_batch(heads, batches), by_batch(whole, batches), graphs, strict=True
        ):
            grid = batch.grid(piece, fill=0).transpose(1, 2)
            into_parts = attend_backward(found, grid, self._scaling)
            # Laid out as the rows are: [sequences, longest, heads, head].
            joined = whole.new_empty(grid.shape[0], grid.shape[2], *whole.shape[1:])
            torch.cat(into_parts, dim=1, out=joined.transpose(1, 2))
            batch.pack(joined, into)
        return whole


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
                group = SharedInput([module], None, adapters.scale, adapters.dropout)
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
        losses: LossRows,
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
            group.backward(one, piece, losses.rows, needs_input=needs_input)
            for group, one, piece in zip(self.groups, seen, pieces, strict=True)
        ]
        present = [one for one in into if one is not None]
        return sum(present[1:], present[0]) if present else upstream
