"""Learning a task: what is not finite refuses it, and what is kept is read as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.learning.progress import Progress
from holdfast.learning.state import Commit, Store
from holdfast.learning.task import learn_task
from tests.learning.test_balance import data_of, learner_of


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
        learn_task(learner, data_of(learner), Progress())
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
    learn_task(learner, data_of(learner), Progress())
    assert calls == ["end", "retire"]


def test_what_is_read_lies_in_memory_like_what_was_made(tmp_path: Path) -> None:
    """A product of what begins elsewhere may round otherwise, and a run that goes on differ."""
    store = Store(tmp_path)
    made = {"odd": torch.rand(3), "next": torch.rand(5, 7), "last": torch.rand(7, 11)}
    size_and_digest = store.save("a.safetensors", made)
    read = store.load(Commit(files={"a.safetensors": size_and_digest}), "a.safetensors")
    assert all(torch.equal(read[name], tensor) for name, tensor in made.items())
    assert {tensor.data_ptr() % 64 for tensor in read.values()} == {0}
