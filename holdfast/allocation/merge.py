"""Merged LoRA: every task's factors are added to the dense matrices; the next task gets new ones.

Source: eq. app-merge-forward, eq. app-merge.
"""

from __future__ import annotations

from holdfast.allocation.base import Allocation, Opening, State, Workspace


class Merged(Allocation):
    """After t tasks the committed change of a matrix can reach rank t r."""

    after_task = "merge"

    def begin(self, state: State, workspace: Workspace, opening: Opening) -> State:
        workspace.fresh(opening.seed, opening.task)
        return state

    def retire(self, state: State, workspace: Workspace) -> State:
        workspace.fold()
        return state
