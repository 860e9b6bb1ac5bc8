"""What is not finite at the boundary refuses the task."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.learning.boundary import learn_task
from holdfast.learning.progress import Progress
from tests.learning.test_balance import learner_of, lesson_of


@pytest.mark.parametrize(
    ("method", "named"),
    [
        ("online_ewc", "of online_ewc is not finite"),
        ("si", "of si is not finite"),
        ("osrm", "of osrm is not finite"),
    ],
)
def test_a_state_that_is_not_finite(
    method: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(method)
    owner: Any = learner.anchors[0][1] if learner.anchors else learner.allocation
    end = owner.end

    def broken(*given: Any) -> Any:
        """The new state, every tensor of it infinite."""
        return torch.utils._pytree.tree_map(lambda tensor: tensor + torch.inf, end(*given))

    monkeypatch.setattr(owner, "end", broken)
    with pytest.raises(HoldfastError, match=f"task 1: .*{named}, the task is not kept"):
        learn_task(learner, lesson_of(learner), Progress())
    assert learner.completed == 0


def test_a_rule_looks_at_the_trained_model_before_it_retires_the_factors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After that the inputs of the maps may be others, by rounding at least."""
    learner, calls = learner_of("osrm"), list[str]()
    for name in ("end", "retire"):
        call = getattr(learner.allocation, name)

        def spied(*given: Any, name: str = name, call: Any = call) -> Any:
            calls.append(name)
            return call(*given)

        monkeypatch.setattr(learner.allocation, name, spied)
    learn_task(learner, lesson_of(learner), Progress())
    assert calls == ["end", "retire"]
