"""One token a row, again and again: the forward step of sampling and of greedy decoding.

On CUDA a step of many small kernels costs more to launch than to run, so its launches are recorded
once as a graph and replayed. A graph wants fixed shapes and addresses: the cache reserves whole
blocks, the position is a tensor, and finished rows leave in whole groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from holdfast.backbone.cache import BLOCK, BlockCache, cache_for
from holdfast.backbone.load import Backbone
from holdfast.backbone.whole_steps import WholeSteps

logger = logging.getLogger(__name__)

# Positions between two looks at what the rows say: on a GPU each look waits for the device.
_POSITIONS_PER_LOOK = {"cpu": 1, "cuda": 16}
_GRAPH_BLOCK = 128  # positions: a graph is recorded for each block, its attention reads all of it
_GRAPH_ROWS = 64  # rows leave in such groups, for the same reason
# In one pass over prompts, which bounds what the passing states take.
_PREFILLED_TOKENS = 16384
# Rounding moves a row's logits by far less of their spread than this, a wrong position by more.
_TOLERANCE = 0.1
# How models refuse rows that they cannot keep.
_REFUSALS = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
# Whether a model's cache serves rows as they come here, see `cache_serves`.
_served: WeakKeyDictionary[Backbone, bool] = WeakKeyDictionary()


class Steps(Protocol):
    """Rows of tokens that grow by one token a call."""

    def __call__(self, ids: Tensor) -> Tensor:
        """Append ids [rows]; return the logits of what follows, [rows, vocabulary]."""
        ...

    def begin(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Say prompts of one token or more, a row each, but for their last; before any call.

        Returns their last tokens, [rows], for the first call.
        """
        ...

    def keep(self, order: Tensor) -> None:
        """Row i becomes row ``order[i]``; a row that is named several times is there as often."""
        ...

    def rows_for(self, running: int, rows: int) -> int:
        """How many of ``rows`` to keep when ``running`` of them are needed."""
        ...


def positions_per_look(device: torch.device) -> int:
    """How many tokens to let rows say between two looks at which of them are finished."""
    return _POSITIONS_PER_LOOK.get(device.type, 1)


def places_for(backbone: Backbone, positions: int) -> int:
    """The places in the cache that a row of so many positions takes: whole blocks."""
    block = _GRAPH_BLOCK if backbone.device.type == "cuda" else BLOCK
    return -(-positions // block) * block


def steps_for(backbone: Backbone, plain: int = 2) -> Steps:
    """The fastest steps for a backbone that has seen nothing yet.

    plain: the first so many positions are not worth a recording.
    """
    if not cache_serves(backbone):
        return WholeSteps(backbone)
    if backbone.device.type != "cuda":
        return PlainSteps(backbone)
    cache = cache_for(backbone.model, _GRAPH_BLOCK)
    if not isinstance(cache, BlockCache):
        logger.info("no CUDA graph: the model's cache has no static shape")
        return PlainSteps(backbone)
    return StaticSteps(backbone, cache, recorded, plain)


def cache_serves(backbone: Backbone) -> bool:
    """Whether rows of unlike lengths say with a cache what they say without, tried once a model."""
    known = _served.get(backbone)
    if known is None:
        known = _served[backbone] = _agrees(backbone)
        if not known:
            kind = type(backbone.model).__name__
            logger.warning("%s generates without a cache, slowly: with one it errs", kind)
    return known


@torch.no_grad()
def _agrees(backbone: Backbone) -> bool:
    """Rows that begin apart, change places, repeat and leave, by both ways."""
    said = []
    for kind in (WholeSteps, PlainSteps):
        steps: Steps = kind(backbone)
        try:
            logits = [steps(steps.begin([[1, 2, 3, 4, 5], [6], [7, 8, 9]]))]
            for order, ids in (([1, 0, 1], [2, 4, 6]), ([2, 1], [8, 1]), ([0, 1], [3, 5])):
                steps.keep(torch.tensor(order, device=backbone.device))
                logits.append(steps(torch.tensor(ids, device=backbone.device)))
        except _REFUSALS:
            if kind is WholeSteps:
                raise
            return False
        said.append(torch.cat(logits))
    whole, cached = said
    return _gap(cached, whole) < _TOLERANCE


def _gap(ours: Tensor, theirs: Tensor) -> float:
    """By how much logits differ in the row that is furthest off, of their spread there."""
    wide = theirs.float()
    return float(((ours.float() - wide).std(dim=1) / wide.std(dim=1)).max())


class PlainSteps:
    """Steps over the filled part of the cache."""

    def __init__(self, backbone: Backbone, cache: Cache | None = None) -> None:
        """cache: an empty one; that of the model's kind if unsaid."""
        self._backbone = backbone
        self._cache = cache_for(backbone.model) if cache is None else cache
        self._length = 0
        self._padding: Tensor | None = None

    def __call__(self, ids: Tensor) -> Tensor:
        logits = self._next(ids)
        self._length += 1
        return logits

    @torch.no_grad()
    def begin(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        ids, self._padding = _left_padded(self._backbone, prompts)
        # The modules' way also where the decoder is known: that one takes a token at a time.
        rows, length = len(ids), ids.shape[1] - 1
        at_once = max(1, _PREFILLED_TOKENS // rows)
        if not isinstance(self._cache, BlockCache):
            at_once = max(1, length)  # some recurrent layers take their beginning in one piece only
        for start in range(0, length, at_once):
            end = min(start + at_once, length)
            self._modules(ids[:, start:end])
            self._length = end
        return ids[:, -1]

    def keep(self, order: Tensor) -> None:
        self._cache.reorder_cache(order)  # type: ignore[arg-type]  # it says LongTensor
        if self._padding is not None:
            self._padding = self._padding[order]

    def rows_for(self, running: int, rows: int) -> int:
        return running

    def _next(self, ids: Tensor) -> Tensor:
        """The logits of one step over the places that are filled, and its own."""
        backbone, room = self._backbone, self._length + 1
        if backbone.decoder is None:
            return backbone.logits(self._modules(ids[:, None])[:, -1])
        position = torch.tensor([self._length], device=ids.device)
        hidden = None
        if self._padding is not None:
            position = position - self._padding
            slots = torch.arange(room, device=ids.device)
            hidden = _hidden(slots < self._padding[:, None], backbone.dtype)
        return backbone.logits(backbone.decoder.step(ids, self._cache, position, room, hidden))

    def _modules(self, ids: Tensor) -> Tensor:
        """The states [rows, n, d] of ids [rows, n], which follow what is filled."""
        places: dict[str, Tensor] = {}
        if self._padding is not None:
            slots = torch.arange(self._length + ids.shape[1], device=ids.device)
            own = slots - self._padding[:, None]
            positions = own[:, self._length :].clamp(min=0)
            places = {"attention_mask": own >= 0, "position_ids": positions}
        outputs = self._backbone.model.base_model(
            input_ids=ids, past_key_values=self._cache, use_cache=True, **places
        )
        states: Tensor = outputs.last_hidden_state
        return states


def _left_padded(
    backbone: Backbone, prompts: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor | None]:
    """Ids [rows, longest], the prompts at their right end; what is before them, [rows], if any."""
    longest = max(map(len, prompts))
    before = [longest - len(prompt) for prompt in prompts]
    rows = [[backbone.pad_token] * n + list(one) for n, one in zip(before, prompts, strict=True)]
    padding = torch.tensor(before, device=backbone.device) if any(before) else None
    return torch.tensor(rows, device=backbone.device), padding


def _hidden(places: Tensor, dtype: torch.dtype) -> Tensor:
    """Minus infinity where ``places`` [rows, room], and zero elsewhere: [rows, 1, 1, room]."""
    hidden = torch.zeros(places.shape, dtype=dtype, device=places.device)
    return hidden.masked_fill_(places, float("-inf"))[:, None, None]


class StaticSteps(PlainSteps):
    """Steps of static shape, prepared anew whenever there are fewer rows or the cache grows.

    The first ``plain`` positions are plain, or begin so: two allocate, and leave a step to record.
    The first step after them is taken both ways; where they differ, or a step cannot be prepared,
    all that follow are plain.

    prepare: makes a function of no arguments, [rows, vocabulary], to be called at every step out
    of the static step, which it may call as often as it likes: it leaves no trace but in the
    place of its own position.
    """

    def __init__(
        self,
        backbone: Backbone,
        cache: BlockCache,
        prepare: Callable[[Callable[[], Tensor]], Callable[[], Tensor]],
        plain: int = 2,
    ) -> None:
        super().__init__(backbone, cache)
        self._blocks = cache
        self._prepare = prepare
        self._plain = max(2, plain)
        self._position = torch.zeros(1, dtype=torch.int64, device=backbone.device)
        self._ids = torch.empty(0, dtype=torch.int64, device=backbone.device)
        self._step: Callable[[], Tensor] | None = None
        self._compared = False
        self.static = True

    def begin(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        last = super().begin(prompts)
        self._ids = last.clone()
        # What is recorded is a place in which every row has a token of its own.
        self._plain = max(self._plain, self._length + 1)
        return last

    def keep(self, order: Tensor) -> None:
        padding = self._padding
        super().keep(order)
        if len(order) != len(self._ids):
            self._ids = self._ids[order]
            self._step = None
            return
        # What is recorded finds everything where it was.
        self._ids.copy_(self._ids[order])
        if padding is not None and self._padding is not None:
            self._padding = padding.copy_(self._padding)

    def rows_for(self, running: int, rows: int) -> int:
        if not self.static:
            return running
        return min(rows, -(-running // _GRAPH_ROWS) * _GRAPH_ROWS)

    def _next(self, ids: Tensor) -> Tensor:
        if self._length < self._plain or not self.static:
            self._ids = ids.clone()
            return super()._next(ids)
        try:
            logits = self._replay(ids)
        except (RuntimeError, TypeError, ValueError) as error:
            if self._compared:
                raise
            return self._give_up(ids, " ".join(str(error).split())[:200])
        if self._compared:
            return logits
        self._compared = True
        plain = super()._next(ids)
        gap = _gap(logits, plain)
        if not gap < _TOLERANCE:
            self.static = False
            logger.warning("steps are not replayed: they differ from plain ones by %.2g", gap)
        return plain

    def _replay(self, ids: Tensor) -> Tensor:
        self._blocks.fix(self._position)
        try:
            if self._length >= self._blocks.room:
                self._blocks.reserve(self._length + 1)
                self._step = None
            if self._step is None:
                # Recorded in the place of the step before, whose keys it writes once more.
                self._position.fill_(self._length - 1)
                self._step = self._prepare(self._forward)
            self._position.fill_(self._length)
            self._ids.copy_(ids)
            return self._step()
        finally:
            self._blocks.fix(None)

    def _give_up(self, ids: Tensor, reason: str) -> Tensor:
        logger.warning("steps are not replayed: %s", reason)
        self.static = False
        return super()._next(ids)

    def _forward(self) -> Tensor:
        backbone, room = self._backbone, self._blocks.room
        slots = torch.arange(room, device=self._ids.device)[None]
        unwritten, position = slots > self._position, self._position
        if self._padding is not None:
            unwritten = unwritten | (slots < self._padding[:, None])
            position = position - self._padding
        hidden = _hidden(unwritten, backbone.dtype)
        if backbone.decoder is not None:
            states = backbone.decoder.step(self._ids, self._cache, position, room, hidden)
            return backbone.logits(states)
        outputs = backbone.model.base_model(
            input_ids=self._ids[:, None],
            position_ids=position[:, None],
            attention_mask=hidden.expand(len(self._ids), -1, -1, -1),
            past_key_values=self._cache,
            use_cache=True,
        )
        return backbone.logits(outputs.last_hidden_state[:, -1])


def recorded(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The step as a CUDA graph. Its result is overwritten by the next call."""
    graph = torch.cuda.CUDAGraph()
    # Of what other threads do meanwhile nothing is recorded, and nothing is refused.
    recording = torch.cuda.graph(graph, capture_error_mode="thread_local")
    here, side = torch.cuda.current_stream(), recording.capture_stream
    assert side is not None
    side.wait_stream(here)
    with torch.cuda.stream(side):  # libraries set themselves up in a run that is not recorded
        step()
    here.wait_stream(side)
    try:
        with recording:
            logits = step()
    finally:
        torch.cuda.set_stream(here)  # a recording that fails would leave its own behind

    def replay() -> Tensor:
        graph.replay()
        return logits

    return replay
