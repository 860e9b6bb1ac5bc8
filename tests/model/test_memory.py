"""No second copy of the model is alive while a task is learned."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch

from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, TaskData
from holdfast.learning.progress import Progress
from holdfast.learning.task import learn_task
from holdfast.model.backbone import Backbone
from tests.tiny import byte_tokenizer, flat, short_sequences, tiny_llama

ITEMS, SAMPLES, NEW_TOKENS, WIDTH, RANK = 4, 4, 6, 64, 1


def entries_alive() -> int:
    """Entries of every storage that a tensor alive in Python owns, each counted once."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter):
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes() // thing.element_size()
    return sum(storages.values())


class Census(Progress):
    def __init__(self) -> None:
        self.most = 0

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        self.most = max(self.most, entries_alive())


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize("rule", ["merge", "osrm"])
def test_a_teacher_costs_its_hidden_states(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay and self-distillation keep hidden states of the previous model, never a copy of it.

    Beyond what is alive between tasks: the two moments of Adam and the coordinates before the
    task, each P; d numbers for every token that the previous model was asked about; token ids.
    What a step keeps for its backward pass is freed when it is over.
    """
    backbone = Backbone(tiny_llama(width=WIDTH), byte_tokenizer())
    values: dict[str, Any] = {
        "method": f"sd_replay_{rule}",
        "lora": {"rank": RANK},
        "optim": {"epochs": 1, "batch_size": 2},
        "sampling": {"samples": SAMPLES, "max_new_tokens": NEW_TOKENS},
    }
    learner = Learner(RunConfig.of(values), backbone)
    sequences = short_sequences(ITEMS, first=backbone.seed_token)
    learn_task(learner, TaskData(sequences), Progress())

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("a copy of the model")

    model = sum(parameter.numel() for parameter in backbone.model.parameters())
    workspace = flat(learner.workspace.parameters()).numel()
    teacher = WIDTH * (sum(map(len, sequences)) + SAMPLES * NEW_TOKENS)
    bound = 3 * workspace + teacher + 1000
    before, census = entries_alive(), Census()
    with monkeypatch.context() as patch:
        patch.setattr(copy, "deepcopy", forbidden)
        patch.setattr(torch.nn.Module, "__deepcopy__", forbidden, raising=False)
        learn_task(learner, TaskData(sequences), census)
    assert census.most > before
    assert census.most - before < bound
    # The bound is a real one: a copy of the model would not fit.
    assert model > 3 * bound
