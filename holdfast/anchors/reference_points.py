"""Reference points that keep examples: upper bounds for methods that keep none.

They are not continual learning. A tag names one of them alone, or with an allocation rule.
Source: stored items are replayed as in experience replay, Chaudhry et al. 2019, "On Tiny Episodic
Memories in Continual Learning".
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import Anchor, Needs, State, Step
from holdfast.core import config as core_config
from holdfast.model.projection import token_cross_entropy


class StoredReplay(Anchor):
    """Replay stored items of earlier tasks instead of samples of the previous model.

    The section ``replay`` sets their minibatches and their weight.
    """

    class Config(core_config.Config):
        """items: how many are stored, drawn uniformly from all earlier tasks."""

        items: int = Field(400, ge=1)

    needs = Needs(replay=True, stored=1)

    def __init__(self, config: StoredReplay.Config) -> None:
        self.config = config
        self.needs = Needs(replay=True, stored=config.items)

    def loss(self, state: State, step: Step) -> Tensor:
        if step.replay is None:
            return step.zero()
        return step.replay.mean(token_cross_entropy)


class JointTraining(Anchor):
    """Train every task together with all earlier ones, as if they had come at once."""

    needs = Needs(joint=True)

    def strength(self, state: State) -> float:
        return 0.0

    def loss(self, state: State, step: Step) -> Tensor:
        return step.zero()
