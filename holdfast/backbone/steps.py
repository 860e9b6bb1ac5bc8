"""One token a row, again and again: the forward step of sampling.

On CUDA a step of many small kernels costs more to launch than to run, so its launches are recorded
once as a graph and replayed. A graph wants fixed shapes and addresses: the cache reserves whole
blocks, the position is a tensor, and finished rows leave in whole groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from holdfast.backbone.cache import BlockCache, cache_for
from holdfast.backbone.load import Backbone

logger = logging.getLogger(__name__)

_GRAPH_BLOCK = 128  # positions: a graph is recorded for each block, its attention reads all of it
_GRAPH_ROWS = 64  # rows leave in such groups, for the same reason
# In one pass over prompts, which bounds what the passing states take.
_PREFILLED_TOKENS = 16384
# Rounding moves logits by far less than this share of their spread, a wrong position by more.
_TOLERANCE = 0.1


class Steps(Protocol):
    """Rows of tokens that grow by one token a call."""

    def __call__(self, ids: Tensor) -> Tensor:
        """Append ids [rows]; return the logits of what follows, [rows, vocabulary]."""
        ...

    def prefill(self, ids: Tensor) -> None:
        """Begin with ids [rows, length], at least one a row; before any call."""
        ...

    def keep(self, order: Tensor) -> None:
        """Row i becomes row ``order[i]``; a row that is named several times is there as often."""
        ...

    def rows_for(self, running: int, rows: int) -> int:
        """How many of ``rows`` to keep when ``running`` of them are needed."""
        ...


def steps_for(backbone: Backbone) -> Steps:
    """The fastest steps for a backbone that has seen nothing yet."""
    if backbone.device.type != "cuda":
        return PlainSteps(backbone)
    cache = cache_for(backbone.model, _GRAPH_BLOCK)
    if not isinstance(cache, BlockCache):
        logger.info("no CUDA graph: the model's cache has no static shape")
        return PlainSteps(backbone)
    return StaticSteps(backbone, cache, recorded)


class PlainSteps:
    """Steps over the filled part of the cache."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._cache = cache_for(backbone.model)

    def __call__(self, ids: Tensor) -> Tensor:
        return _plain(self._backbone, self._cache, ids)

    def prefill(self, ids: Tensor) -> None:
        _prefill(self._backbone, self._cache, ids)

    def keep(self, order: Tensor) -> None:
        self._cache.batch_select_indices(order)

    def rows_for(self, running: int, rows: int) -> int:
        return running


def _plain(backbone: Backbone, cache: Cache, ids: Tensor) -> Tensor:
    if backbone.decoder is not None:
        filled = cache.get_seq_length()
        position = torch.tensor([filled], device=ids.device)
        return backbone.logits(backbone.decoder.step(ids, cache, position, filled + 1))
    outputs = backbone.model.base_model(
        input_ids=ids[:, None], past_key_values=cache, use_cache=True
    )
    return backbone.logits(outputs.last_hidden_state[:, -1])


@torch.no_grad()
def _prefill(backbone: Backbone, cache: Cache, ids: Tensor) -> None:
    # The modules' way also where the decoder is known: that one takes a token at a time.
    for piece in ids.split(max(1, _PREFILLED_TOKENS // len(ids)), dim=1):
        backbone.model.base_model(input_ids=piece, past_key_values=cache, use_cache=True)


class StaticSteps:
    """Steps of static shape, prepared anew whenever rows leave or the cache grows.

    The first two positions are plain, or prefilled: they allocate, and leave a step to record. The
    first step after them is taken both ways; where they differ, or a step cannot be prepared, all
    that follow are plain.

    prepare: makes a function of no arguments, [rows, vocabulary], to be called at every step out
    of the static step, which it may call as often as it likes: it leaves no trace but in the
    place of its own position.
    """

    def __init__(
        self,
        backbone: Backbone,
        cache: BlockCache,
        prepare: Callable[[Callable[[], Tensor]], Callable[[], Tensor]],
    ) -> None:
        self._backbone = backbone
        self._cache = cache
        self._prepare = prepare
        self._length = 0
        self._position = torch.zeros(1, dtype=torch.int64, device=backbone.device)
        self._ids = torch.empty(0, dtype=torch.int64, device=backbone.device)
        self._step: Callable[[], Tensor] | None = None
        self._compared = False
        self.static = True

    def __call__(self, ids: Tensor) -> Tensor:
        logits = self._next(ids)
        self._length += 1
        return logits

    def prefill(self, ids: Tensor) -> None:
        _prefill(self._backbone, self._cache, ids)
        self._length = ids.shape[1]
        self._ids = ids[:, -1].clone()

    def keep(self, order: Tensor) -> None:
        self._cache.batch_select_indices(order)
        self._ids = self._ids[order]
        self._step = None

    def rows_for(self, running: int, rows: int) -> int:
        if not self.static:
            return running
        return min(rows, -(-running // _GRAPH_ROWS) * _GRAPH_ROWS)

    def _next(self, ids: Tensor) -> Tensor:
        if self._length < 2 or not self.static:
            self._ids = ids.clone()
            return _plain(self._backbone, self._cache, ids)
        try:
            logits = self._replay(ids)
        except (RuntimeError, TypeError, ValueError) as error:
            if self._compared:
                raise
            return self._give_up(ids, " ".join(str(error).split())[:200])
        if self._compared:
            return logits
        self._compared = True
        plain = _plain(self._backbone, self._cache, ids)
        gap = (logits.float() - plain.float()).std() / plain.float().std()
        if not bool(gap < _TOLERANCE):
            self.static = False
            logger.warning("steps are not replayed: they differ from plain ones by %.2g", gap)
        return plain

    def _replay(self, ids: Tensor) -> Tensor:
        self._cache.fix(self._position)
        try:
            if self._length >= self._cache.room:
                self._cache.reserve(self._length + 1)
                self._step = None
            if self._step is None:
                # Recorded in the place of the step before, whose keys it writes once more.
                self._position.fill_(self._length - 1)
                self._step = self._prepare(self._forward)
            self._position.fill_(self._length)
            self._ids.copy_(ids)
            return self._step()
        finally:
            self._cache.fix(None)

    def _give_up(self, ids: Tensor, reason: str) -> Tensor:
        logger.warning("steps are not replayed: %s", reason)
        self.static = False
        return _plain(self._backbone, self._cache, ids)

    def _forward(self) -> Tensor:
        backbone, room = self._backbone, self._cache.room
        slots = torch.arange(room, device=self._ids.device)
        hidden = torch.zeros(1, 1, 1, room, dtype=backbone.dtype, device=slots.device)
        hidden = hidden.masked_fill(slots > self._position, float("-inf"))
        if backbone.decoder is not None:
            states = backbone.decoder.step(self._ids, self._cache, self._position, room, hidden)
            return backbone.logits(states)
        outputs = backbone.model.base_model(
            input_ids=self._ids[:, None],
            position_ids=self._position[None],
            attention_mask=hidden.expand(len(self._ids), -1, -1, -1),
            past_key_values=self._cache,
            use_cache=True,
        )
        return backbone.logits(outputs.last_hidden_state[:, -1])


def recorded(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The step as a CUDA graph. Its result is overwritten by the next call."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries set themselves up in a run that is not recorded
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = step()

    def replay() -> Tensor:
        graph.replay()
        return logits

    return replay
