"""The function anchor on general text: what it keeps, whose distributions, and its term."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from holdfast.anchors import Text
from holdfast.anchors.base import State, Step, TaskStart
from holdfast.anchors.general import GeneralDistillation
from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, TaskData
from holdfast.learning.progress import Progress
from holdfast.learning.task import learn_task
from holdfast.model.backbone import Backbone
from holdfast.model.projection import Projection
from holdfast.model.sequences import Batch, TokenStates, collate
from tests.tiny import exact_backbone, short_sequences

VALUES: dict[str, Any] = {
    "lora": {"rank": 2, "alpha": 4, "targets": ("q_proj", "v_proj", "down_proj")},
    "optim": {"epochs": 2, "batch_size": 2, "lr": 0.01},
    "sampling": {"samples": 4, "max_new_tokens": 6},
    "general": {"texts": 5, "strength": 2.0, "temperature": 1.5},
}
TEXT = Text([[3, 1, 4], [1, 5], [9, 2, 6, 5]], TokenStates(torch.randn(6, 4), [0, 2, 3, 6]))


def learner_of(method: str = "general_merge", **sections: Any) -> Learner:
    return Learner(RunConfig.of({**VALUES, "method": method, **sections}), exact_backbone())


def learn(learner: Learner, *, seed: int = 0) -> Any:
    data = TaskData(short_sequences(4, seed=seed), past_items=4 * learner.completed)
    return learn_task(learner, data, Progress())


def begun(anchor: GeneralDistillation, task: int, state: State | None = None) -> State:
    def text(count: int) -> Text:
        assert count == anchor.config.texts
        return TEXT

    return anchor.begin(state or {}, TaskStart(task, {}, text=text))


def test_the_text_is_kept_as_it_was_written() -> None:
    anchor = GeneralDistillation(GeneralDistillation.Config(texts=3))
    assert anchor.text({}) is None
    state = begun(anchor, 1)
    for each in (state, anchor.unpack(anchor.pack(state))):
        text = anchor.text(each)
        assert text is not None and text.sequences == TEXT.sequences
        assert list(text.states.starts) == list(TEXT.states.starts)
        assert torch.equal(text.states.rows([2, 0]), TEXT.states.rows([2, 0]))


def test_it_is_written_before_the_first_task_only() -> None:
    anchor = GeneralDistillation(GeneralDistillation.Config(texts=3))
    first = begun(anchor, 1)
    assert begun(anchor, 2, first) is first
    assert begun(anchor, 2) == {}


def test_the_term_is_the_divergence_from_the_untouched_model() -> None:
    """From the model before the first task, whatever was merged into its matrices since."""
    untouched, learner = exact_backbone(), learner_of()
    for seed in range(3):
        learn(learner, seed=seed)
    text = learner.general()
    assert text is not None and len(text.sequences) == 5
    ids = torch.tensor([text.sequences[1]])
    with torch.no_grad():
        q, p = (
            (backbone.model(input_ids=ids).logits[0, :-1] / 1.5).log_softmax(dim=-1)
            for backbone in (untouched, learner.backbone)
        )
    expected = 1.5**2 * (q.exp() * (q - p)).sum(dim=-1).mean()
    anchor, state = learner.anchors[0][1], learner.states["general"]
    batch = collate([text.sequences[1]], learner.backbone.device, None, text.states.rows([1]))
    with learner.backbone.learning():
        (projection,) = learner.backbone.forward_pass(batch).projections
        loss = anchor.loss(state, Step({}, projection, None, general=projection))
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-10)
    assert float(expected) > 1e-6


def test_a_stronger_anchor_keeps_the_model_nearer_to_itself() -> None:
    def divergence(strength: float) -> float:
        learner = learner_of(general={**VALUES["general"], "strength": strength})
        for seed in range(2):
            report = learn(learner, seed=seed)
        return float(report.epochs[-1]["general"])

    assert divergence(30.0) < 0.5 * divergence(0.0)


def test_a_step_has_as_many_minibatches_as_one_says(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of(general={**VALUES["general"], "minibatches_per_step": 2})
    rows: list[int] = []
    forward_pass = Backbone.forward_pass

    def spied(self: Backbone, *batches: Batch, **named: Any) -> Any:
        rows.extend(len(batch.lengths) for batch in batches[1:])
        return forward_pass(self, *batches, **named)

    monkeypatch.setattr(Backbone, "forward_pass", spied)
    learn(learner)
    # Five texts, two a minibatch, the last of a round short: 2 + 2, then 1 + 2 of a new round.
    assert rows == [4, 3] * 2


def test_without_text_it_is_nothing() -> None:
    learner = learner_of()
    step = Step(learner.workspace.parameters(), Projection.__new__(Projection), None)
    assert float(learner.anchors[0][1].loss({}, step)) == 0


def test_a_model_that_writes_nothing_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.learning.task.first_general_text", lambda *_: [])
    with pytest.raises(HoldfastError, match="general: every text that the untouched model wrote"):
        learn(learner_of())
