"""Shared LoRA: one pair of factors for all tasks.

Source: eq. app-shared.
"""

from __future__ import annotations

from holdfast.allocation.base import Allocation, Opening, State, Workspace


class Shared(Allocation):
    """The cumulative change of every matrix has at most rank r."""

    after_task = "keep"

    def begin(self, state: State, workspace: Workspace, opening: Opening) -> State:
        if opening.task == 1:
            workspace.fresh(opening.seed, opening.task)
        return state

    def retire(self, state: State, workspace: Workspace) -> State:
        """The factors stay; the next task continues to train them."""
        return state
