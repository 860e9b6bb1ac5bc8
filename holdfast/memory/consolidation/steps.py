"""Training steps over facts: which facts, at which learning rate, and the state to keep.

Every draw follows from the seed and the step's number, so a run that was killed continues from its
last state to the same bits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from holdfast.core.seeding import derive
from holdfast.memory.consolidation.own_texts import OwnTextSettings

_WARMUP = 10  # steps
_Worded = TypeVar("_Worded")


@dataclass(frozen=True)
class StepSettings:
    """Settings of every run, into an adapter or into neurons.

    lr: AdamW's, which falls to ``floor`` of it along half a cosine; facts: in a step; varied: the
    probability that a step takes another wording than the taught one; corrupted: the most
    corruptions of a fact's wordings; visits: how often each fact is taken; least: the fewest steps;
    own: the model's own texts.
    """

    lr: float = 7e-4
    floor: float = 0.05
    facts: int = 32
    varied: float = 0.7
    corrupted: int = 16
    visits: int = 240
    least: int = 60
    own: OwnTextSettings = field(default_factory=OwnTextSettings)


class Steps:
    """Parameters that AdamW trains, in steps of some facts each.

    step: how many steps are made; steps: how many there are.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
        settings: StepSettings,
        facts: int,
        seed: int,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        """parameters: by name, trained in place; facts: their number."""
        self.parameters = dict(parameters)
        self._count, self.seed = facts, seed
        self._lr, self._floor = settings.lr, settings.floor
        self._size = min(settings.facts, facts)
        self.step = 0
        self.steps = max(settings.least, math.ceil(facts * settings.visits / self._size))
        self._optimizer = torch.optim.AdamW(
            list(self.parameters.values()), lr=settings.lr, betas=betas, weight_decay=0.0
        )

    def fact_numbers(self) -> list[int]:
        """The numbers of this step's facts, from a new random order of all facts in each epoch."""
        facts: list[int] = []
        while missing := self._size - len(facts):
            epoch, begin = divmod(self.step * self._size + len(facts), self._count)
            order = list(range(self._count))
            random.Random(derive(self.seed, "epoch", epoch)).shuffle(order)
            facts += order[begin : begin + missing]
        return facts

    def begin_step(self) -> None:
        """Set the learning rate and clear the gradients."""
        warmup = min(1.0, (self.step + 1) / _WARMUP)
        decay = (1 + math.cos(math.pi * self.step / self.steps)) / 2
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr * warmup * (self._floor + (1 - self._floor) * decay)
        self._optimizer.zero_grad(set_to_none=True)

    def end_step(self) -> None:
        """Update the parameters by their gradients, and count the step."""
        self._optimizer.step()
        self.step += 1

    def tensors(self) -> dict[str, torch.Tensor]:
        """The parameters by name, and AdamW's moments of them as ``.mean`` and ``.square``."""
        tensors: dict[str, torch.Tensor] = {}
        for name, parameter in self.parameters.items():
            tensors[name] = parameter.detach().clone()
            if state := self._optimizer.state.get(parameter):
                tensors[f"{name}.mean"] = state["exp_avg"].clone()
                tensors[f"{name}.square"] = state["exp_avg_sq"].clone()
        return tensors

    def resume(self, step: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from the :meth:`tensors` after ``step`` steps; KeyError if one is missing."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[name])
                if step:
                    self._optimizer.state[parameter] = {
                        "step": torch.tensor(float(step)),
                        "exp_avg": tensors[f"{name}.mean"].clone(),
                        "exp_avg_sq": tensors[f"{name}.square"].clone(),
                    }
        self.step = step


def choose_wording(questions: Sequence[_Worded], varied: float, draw: random.Random) -> _Worded:
    """The first question, or with probability ``varied`` one of the others, if there are any."""
    if len(questions) > 1 and draw.random() < varied:
        return draw.choice(questions[1:])
    return questions[0]
