"""Cached steps that are recorded as a CUDA graph and replayed.

On CUDA a step of many small kernels costs more to launch than to run. A graph launches them at
once. It needs fixed shapes and addresses: the cache reserves whole blocks, the position is a
tensor, and finished rows are dropped in whole groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from holdfast.backbone.generation.cache import BlockCache
from holdfast.backbone.generation.cached import CachedSteps, additive_mask
from holdfast.backbone.model import Backbone

logger = logging.getLogger(__name__)

GRAPH_BLOCK = 128  # positions: a graph is recorded for each block, its attention reads all of it
_GRAPH_ROWS = 64  # rows are dropped in such groups, since a graph has a fixed number of rows
# Relative to their spread, rounding moves a row's logits by far less, a wrong position by more.
TOLERANCE = 0.1


class GraphSteps:
    """Rows of tokens that grow by one token a call; a ``Steps``.

    A graph is recorded anew whenever there are fewer rows or the cache grows. The first ``eager``
    positions are not recorded; the first step after them runs eagerly and as a graph. Where the two
    differ, or a step cannot be recorded, all later steps are eager, and ``replays`` is False.
    """

    def __init__(
        self,
        backbone: Backbone,
        cache: BlockCache,
        record: Callable[[Callable[[], Tensor]], Callable[[], Tensor]],
        eager: int = 2,
    ) -> None:
        """cache: an empty one; eager: at least 2, two steps allocate what a recording must find.

        record: turns a step, a function of no arguments to logits [rows, vocabulary], into one
        that replays it. It may call the step as often as it likes, which changes nothing but the
        cache at the step's own position. See :func:`recorded`.
        """
        self._backbone = backbone
        self._cache = cache
        self._cached = CachedSteps(backbone, cache)
        self._record = record
        self._eager = max(2, eager)
        self._position = torch.zeros(1, dtype=torch.int64, device=backbone.device)
        self._ids = torch.empty(0, dtype=torch.int64, device=backbone.device)
        self._step: Callable[[], Tensor] | None = None
        self._compared = False
        self.replays = True

    def __call__(self, ids: Tensor) -> Tensor:
        logits = self._next(ids)
        self._cached.length += 1
        return logits

    def begin(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        last = self._cached.begin(prompts)
        self._ids = last.clone()
        # A recording needs a position in which every row has a token of its own.
        self._eager = max(self._eager, self._cached.length + 1)
        return last

    def keep(self, order: Tensor) -> None:
        padding = self._cached.padding
        self._cached.keep(order)
        if len(order) != len(self._ids):
            self._ids = self._ids[order]
            self._step = None
            return
        # The recording finds everything at the addresses that it knows.
        self._ids.copy_(self._ids[order])
        if padding is not None and self._cached.padding is not None:
            self._cached.padding = padding.copy_(self._cached.padding)

    def rows_for(self, running: int, rows: int) -> int:
        if not self.replays:
            return running
        return min(rows, -(-running // _GRAPH_ROWS) * _GRAPH_ROWS)

    def _next(self, ids: Tensor) -> Tensor:
        if self._cached.length < self._eager or not self.replays:
            self._ids = ids.clone()
            return self._cached.next(ids)
        try:
            logits = self._replay(ids)
        except (RuntimeError, TypeError, ValueError) as error:
            if self._compared:
                raise
            return self._give_up(ids, " ".join(str(error).split())[:200])
        if self._compared:
            return logits
        self._compared = True
        eager = self._cached.next(ids)
        gap = relative_gap(logits, eager)
        if not gap < TOLERANCE:
            self.replays = False
            logger.warning("steps are not replayed: they differ from eager ones by %.2g", gap)
        return eager

    def _replay(self, ids: Tensor) -> Tensor:
        self._cache.fix(self._position)
        length = self._cached.length
        try:
            if length >= self._cache.room:
                self._cache.reserve(length + 1)
                self._step = None
            if self._step is None:
                # Recorded at the position of the step before, whose keys it writes once more.
                self._position.fill_(length - 1)
                self._step = self._record(self._forward)
            self._position.fill_(length)
            self._ids.copy_(ids)
            return self._step()
        finally:
            self._cache.fix(None)

    def _give_up(self, ids: Tensor, reason: str) -> Tensor:
        logger.warning("steps are not replayed: %s", reason)
        self.replays = False
        return self._cached.next(ids)

    def _forward(self) -> Tensor:
        backbone, room = self._backbone, self._cache.room
        slots = torch.arange(room, device=self._ids.device)[None]
        hidden, position = slots > self._position, self._position
        if self._cached.padding is not None:
            hidden = hidden | (slots < self._cached.padding[:, None])
            position = position - self._cached.padding
        mask = additive_mask(hidden, backbone.dtype)
        if backbone.decoder is not None:
            return backbone.logits(
                backbone.decoder.step(self._ids, self._cache, position, room, mask)
            )
        outputs = backbone.model.base_model(
            input_ids=self._ids[:, None],
            position_ids=position[:, None],
            attention_mask=mask.expand(len(self._ids), -1, -1, -1),
            past_key_values=self._cache,
            use_cache=True,
        )
        return backbone.logits(outputs.last_hidden_state[:, -1])


def relative_gap(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference of logits [rows, vocabulary] over any row, relative to its spread."""
    wide = theirs.float()
    return float(((ours.float() - wide).std(dim=1) / wide.std(dim=1)).max())


def recorded(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The step as a CUDA graph. Its result is overwritten by the next call."""
    graph = torch.cuda.CUDAGraph()
    # Work of other threads is neither recorded nor refused.
    recording = torch.cuda.graph(graph, capture_error_mode="thread_local")
    here, side = torch.cuda.current_stream(), recording.capture_stream
    assert side is not None
    side.wait_stream(here)
    with torch.cuda.stream(side):  # a warm-up run lets libraries initialise
        step()
    here.wait_stream(side)
    try:
        with recording:
            logits = step()
    finally:
        torch.cuda.set_stream(here)  # a failed recording would leave its stream current

    def replay() -> Tensor:
        graph.replay()
        return logits

    return replay
