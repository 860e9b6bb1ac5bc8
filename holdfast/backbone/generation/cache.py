"""Keys and values of generation, written in place.

The cache of transformers is copied whole at every token. This one reserves room in blocks and
writes into it; the last row takes the place of one that finishes.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

logger = logging.getLogger(__name__)

BLOCK = 64  # positions reserved at a time


def cache_for(model: Any, block: int = BLOCK) -> Cache:
    """An empty cache: :class:`BlockCache`, or the model's own kind where that cannot serve it.

    Sliding windows, recurrent states and layers that share their keys need what transformers
    keeps for them; attention to everything needs only keys and values.

    block: positions reserved at a time.
    """
    plain = DynamicCache(config=model.config)
    kinds = {type(layer) for layer in plain.layers}
    if kinds == {DynamicLayer}:
        return BlockCache(len(plain.layers), block)
    names = ", ".join(sorted(kind.__name__ for kind in kinds)) or "layers unknown until they run"
    logger.info("generation keeps transformers' own cache: this model has %s", names)
    return plain


def bytes_per_token(model: Any) -> int:
    """What one token of one row takes in the cache; an upper bound where windows slide."""
    config = model.config
    heads = config.num_attention_heads
    kept = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * kept * width * model.dtype.itemsize)


def compacting(stays: Tensor, rows: int) -> Tensor:
    """The order, [rows], that keeps every staying row and moves as few as possible.

    stays: [rows before] bool, at most ``rows`` of them True; leaving rows fill the other places.
    """
    order = torch.arange(rows, device=stays.device)
    movers = rows + stays[rows:].nonzero().squeeze(1)
    holes = (~stays[:rows]).nonzero().squeeze(1)[: len(movers)]
    order[holes] = movers
    return order


class BlockCache(Cache):
    """Keys and values of every layer, with room for whole blocks of positions.

    An ordinary step hands attention the filled positions. After :meth:`fix` a step has a static
    shape instead: it writes at the position that a tensor holds and hands attention all reserved
    positions; the caller masks those that are empty.
    """

    def __init__(self, layers: int, block: int) -> None:
        self._blocks = [_BlockLayer(block) for _ in range(layers)]
        super().__init__(layers=list(self._blocks))

    @property
    def room(self) -> int:
        """Positions reserved so far; 0 before the first step."""
        return self._blocks[0].room

    def reserve(self, positions: int) -> None:
        """Make room for so many positions; the storage moves when it has to grow."""
        for layer in self._blocks:
            layer.reserve(positions)

    def fix(self, position: Tensor | None) -> None:
        """Write at ``position``, int64 [1] on the device, from now on; None: behind the filled."""
        for layer in self._blocks:
            layer.position = position

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Row i becomes row ``beam_idx[i]``: in place unless there are more, so few are copied."""
        moved = (beam_idx != torch.arange(len(beam_idx), device=beam_idx.device)).nonzero()
        for layer in self._blocks:
            layer.reorder(beam_idx, moved.squeeze(1))


class _BlockLayer(CacheLayerMixin):
    """keys, values: [rows, heads, room, d], of which ``filled`` positions are in use."""

    is_sliding = False
    keys: Tensor
    values: Tensor

    def __init__(self, block: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.block = block
        self.filled = 0
        self.position: Tensor | None = None

    @property
    def room(self) -> int:
        return self.keys.shape[2] if self.is_initialized else 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        self.is_initialized = True

    def reserve(self, positions: int) -> None:
        if positions > self.room:
            room = -(-positions // self.block) * self.block
            self.keys, self.values = _grown(self.keys, room), _grown(self.values, room)

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.position is not None:
            self.keys.index_copy_(2, self.position, key_states)
            self.values.index_copy_(2, self.position, value_states)
            return self.keys, self.values
        begin, end = self.filled, self.filled + key_states.shape[2]
        self.reserve(end)
        self.keys[:, :, begin:end] = key_states
        self.values[:, :, begin:end] = value_states
        self.filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.filled + query_length, 0

    def get_seq_length(self) -> int:
        return self.filled

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5.13

    def reorder(self, order: Tensor, moved: Tensor) -> None:
        """Row i becomes row ``order[i]``; ``moved``: those that another row becomes."""
        if not self.is_initialized:
            return
        rows, sources = len(order), order[moved]
        if rows > len(self.keys):
            self.keys, self.values = self.keys[order], self.values[order]
            return
        self.keys[moved] = self.keys[sources]
        self.values[moved] = self.values[sources]
        self.keys, self.values = self.keys[:rows], self.values[:rows]


def _grown(tensor: Tensor, room: int) -> Tensor:
    """A copy with ``room`` positions; zeros behind, which a mask can hide (0 * NaN is NaN)."""
    rows, heads, filled, width = tensor.shape
    grown = tensor.new_zeros(rows, heads, room, width)
    grown[:, :, :filled] = tensor
    return grown
