"""The forward step of sampling and greedy decoding: rows of tokens that grow by one token a call.

Three kinds: uncached, cached, and cached with a CUDA graph.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from holdfast.backbone.generation.cache import BLOCK, BlockCache, cache_for
from holdfast.backbone.generation.cached import CachedSteps
from holdfast.backbone.generation.graph import (
    GRAPH_BLOCK,
    TOLERANCE,
    GraphSteps,
    recorded,
    relative_gap,
)
from holdfast.backbone.generation.uncached import UncachedSteps
from holdfast.backbone.model import Backbone

logger = logging.getLogger(__name__)

# Positions between two checks for finished rows: on a GPU a check waits for the device.
_POSITIONS_PER_LOOK = {"cpu": 1, "cuda": 16}
# What models raise when they cannot reorder or drop rows.
_REFUSALS = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
# Whether each probed model's cache can be used; see `can_cache`.
_can_cache: WeakKeyDictionary[Backbone, bool] = WeakKeyDictionary()


class Steps(Protocol):
    """Rows of tokens that grow by one token a call."""

    def __call__(self, ids: Tensor) -> Tensor:
        """Append ids [rows]; return the logits of what follows, [rows, vocabulary]."""
        ...

    def begin(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Prefill all but each prompt's last token; once, before any call.

        prompts: token ids, a row each, none of them empty. Returns their last tokens, [rows], for
        the first call.
        """
        ...

    def keep(self, order: Tensor) -> None:
        """Reorder: the new row i is the old row ``order[i]``; rows may be dropped or repeated."""
        ...

    def rows_for(self, running: int, rows: int) -> int:
        """How many of ``rows`` to keep when ``running`` of them are needed."""
        ...


def positions_per_look(device: torch.device) -> int:
    """Tokens to append between two checks for finished rows."""
    return _POSITIONS_PER_LOOK.get(device.type, 1)


def reserved_positions(backbone: Backbone, positions: int) -> int:
    """The positions that the cache reserves for so many: whole blocks."""
    block = GRAPH_BLOCK if backbone.device.type == "cuda" else BLOCK
    return -(-positions // block) * block


def steps_for(backbone: Backbone, eager: int = 2) -> Steps:
    """The fastest steps that a backbone allows.

    eager: positions before a graph is recorded.
    """
    if not can_cache(backbone):
        return UncachedSteps(backbone)
    if backbone.device.type != "cuda":
        return CachedSteps(backbone)
    cache = cache_for(backbone.model, GRAPH_BLOCK)
    if not isinstance(cache, BlockCache):
        logger.info("no CUDA graph: the model's cache has no static shape")
        return CachedSteps(backbone)
    return GraphSteps(backbone, cache, recorded, eager)


def can_cache(backbone: Backbone) -> bool:
    """Whether cached steps equal uncached ones; probed once a model, with a warning if not."""
    known = _can_cache.get(backbone)
    if known is None:
        known = _can_cache[backbone] = _cached_equals_uncached(backbone)
        if not known:
            kind = type(backbone.model).__name__
            logger.warning("%s generates without a cache, slowly: with one it errs", kind)
    return known


@torch.no_grad()
def _cached_equals_uncached(backbone: Backbone) -> bool:
    """Probe ragged, reordered, repeated and dropped rows, cached and uncached."""
    probed = []
    for kind in (UncachedSteps, CachedSteps):
        steps: Steps = kind(backbone)
        try:
            logits = [steps(steps.begin([[1, 2, 3, 4, 5], [6], [7, 8, 9]]))]
            for order, ids in (([1, 0, 1], [2, 4, 6]), ([2, 1], [8, 1]), ([0, 1], [3, 5])):
                steps.keep(torch.tensor(order, device=backbone.device))
                logits.append(steps(torch.tensor(ids, device=backbone.device)))
        except _REFUSALS:
            if kind is UncachedSteps:
                raise
            return False
        probed.append(torch.cat(logits))
    uncached, cached = probed
    return relative_gap(cached, uncached) < TOLERANCE
