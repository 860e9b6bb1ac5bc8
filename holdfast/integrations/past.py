"""Which models have learned tasks with anchors in this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from holdfast.integrations.anchored import Anchored

logger = logging.getLogger(__name__)

# The number of tasks learned, by model and by the adapter's name.
_learned: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()


def remember(anchored: Anchored) -> None:
    """Note how many tasks the model has learned, if anchors or the rule remember them."""
    if anchored.completed and (anchored.anchors or anchored.allocation_state):
        workspace = anchored.workspace
        _learned.setdefault(workspace.model, {})[workspace.adapter] = anchored.completed


def warn_of_a_lost_past(anchored: Anchored) -> None:
    """Warn if a first task begins on a model that has learned tasks with another Anchored."""
    workspace = anchored.workspace
    tasks = _learned.get(workspace.model, {}).get(workspace.adapter, 0)
    if tasks and not anchored.completed:
        logger.warning(
            "this model has learned with anchors before (tasks: %d), and this Anchored knows "
            "nothing of it, so that nothing holds it; to go on, use the Anchored of before (a "
            "trainer's: anchored=trainer.anchored) or load what it saved. A fresh start goes on",
            tasks,
        )
