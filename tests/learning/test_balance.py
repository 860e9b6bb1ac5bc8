"""How long a task is trained, what its tokens weigh, and what is written beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.learning import learner as module
from holdfast.learning.config import Optimisation, RunConfig
from holdfast.learning.learner import Learner, TaskData
from holdfast.learning.progress import OptimiserStep, Progress, Stopwatch
from holdfast.learning.task import _acquired, ask_previous_model, learn_task
from holdfast.learning.training import Weights, weights_of
from tests.tiny import exact_backbone, short_sequences

ITEMS = 6


def learner_of(method: str, **sections: Any) -> Learner:
    values = {
        "method": method,
        "lora": {"rank": 2, "alpha": 8, "dropout": 0.0},
        "optim": {"epochs": 2, "batch_size": 2, "lr": 0.05},
        "sampling": {"samples": 5, "max_new_tokens": 6},
    }
    for name, settings in sections.items():
        values[name] = {**values.get(name, {}), **settings}  # type: ignore[dict-item]
    return Learner(RunConfig.of(values), exact_backbone())


def data_of(learner: Learner, past_items: int = 0, seed: int = 1) -> TaskData:
    sequences = short_sequences(ITEMS, seed, first=learner.backbone.seed_token)
    return TaskData(sequences, [len(sequence) - 2 for sequence in sequences], past_items)


class Watching(Progress):
    """Notes the rate of every step and what the user is told."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.told: list[str] = []

    def optimised(self, step: OptimiserStep) -> None:
        self.rates.append(step.rate)

    def event(self, text: str) -> None:
        self.told.append(text)


def weights(learner: Learner, task: int, past_items: int) -> Weights:
    data = data_of(learner, past_items)
    past = ask_previous_model(learner, task, data, Stopwatch(), Progress())
    return weights_of(learner, task, data, past)


W = {"replay": {"weight": 0.6}}
SHARE: dict[str, Any] = {"balance": {"share": True}}
SPLIT: dict[str, Any] = {"balance": {"share": True, "answers": 0.5}}
CAPPED: dict[str, Any] = {"balance": {"questions": 0.15}}
BOTH: dict[str, Any] = {"balance": {"questions": 0.15, "share": True}}


@pytest.mark.parametrize(
    ("method", "sections", "task", "past_items", "expected"),
    [
        # The paper's: L_SFT alone without a past, (1 - w) and w beside replay, whatever the items.
        ("merge", {}, 2, 94, (1.0, 1.0, 0.0)),
        ("replay_merge", W, 1, 0, (1.0, 1.0, 0.0)),
        ("replay_merge", W, 2, 94, (0.4, 0.4, 0.6)),
        # Six items after ninety-four are six of a hundred; the replay loss weighs the rest.
        ("replay_merge", W | SHARE, 2, 94, (0.06, 0.06, 0.94)),
        ("replay_merge", W | SHARE, 2, 3, (2 / 3, 2 / 3, 1 - 2 / 3)),
        ("replay_merge", W | SPLIT, 2, 94, (0.06, 0.5, 0.94)),
        ("replay_merge", W | SPLIT, 1, 0, (1.0, 1.0, 0.0)),
        # Without replay the questions may be given a weight, with a share an upper bound.
        ("kfac_merge", CAPPED, 2, 3, (0.15, 0.15, 0.0)),
        ("kfac_merge", BOTH, 2, 94, (0.06, 0.06, 0.0)),
    ],
)
def test_weights(
    method: str, sections: dict[str, Any], task: int, past_items: int, expected: Any
) -> None:
    assert weights(learner_of(method, **sections), task, past_items) == Weights(*expected)


def test_replay_and_a_weight_of_questions_are_refused() -> None:
    with pytest.raises(HoldfastError, match=r"balance\.questions: replay\.weight says it"):
        learner_of("replay_merge", **CAPPED)


def test_training_goes_on_until_the_task_is_acquired() -> None:
    optim = {"acquired": 1.0, "max_steps": 300, "lr": 0.01}
    learner = learner_of("merge", lora={"rank": 8}, optim=optim)
    report = learn_task(learner, data_of(learner), Progress())
    acquired = [epoch["acquired"] for epoch in report.epochs]
    assert 2 < len(acquired) < 100
    assert acquired[-1] == 1.0
    assert all(share < 1.0 for share in acquired[1:-1])  # two epochs are the least


def test_the_warmup_is_a_part_of_the_least_epochs() -> None:
    """How long a task goes on is not known when it begins."""
    optim = {"acquired": 1.0, "max_steps": 12, "lr": 1e-6, "warmup": 0.5}
    learner, progress = learner_of("merge", optim=optim), Watching()
    assert learn_task(learner, data_of(learner), progress).steps == 12
    assert progress.rates == pytest.approx([1e-6 / 3, 2e-6 / 3, *[1e-6] * 10])  # half of six


def test_a_float32_that_was_reached_counts() -> None:
    optim = Optimisation(acquired=0.9)
    assert _acquired(optim, {"acquired": float(torch.tensor(0.9))})
    assert not _acquired(optim, {"acquired": 0.899})


def test_a_cooldown_follows_what_was_acquired() -> None:
    optim = {"acquired": 1.0, "max_steps": 10, "lr": 1e-6, "cooldown": 3}
    learner, progress = learner_of("merge", optim=optim), Watching()
    report = learn_task(learner, data_of(learner), progress)
    assert report.epochs[3]["acquired"] < 1.0  # 10 steps were the most before the cooldown
    assert len(report.epochs) == 4 + 3 and report.steps == len(progress.rates) == 7 * 3
    assert progress.rates[11:] == pytest.approx([1e-6, *(1e-6 * (9 - k) / 9 for k in range(9))])


def test_least_and_most_epochs_by_the_size_of_a_task() -> None:
    plain = Optimisation(epochs=10, batch_size=8)
    assert (plain.epochs_of(32), plain.most_epochs_of(32)) == (10, 10)
    until = Optimisation(epochs=4, batch_size=8, acquired=1.0, max_steps=100)
    assert (until.epochs_of(32), until.most_epochs_of(32)) == (4, 25)
    assert (until.epochs_of(3), until.most_epochs_of(3)) == (4, 100)
    assert (plain.steps_of(32), until.steps_of(32)) == (40, 16)
    assert until.model_copy(update={"cooldown": 2}).steps_of(33) == 30
    least = until.model_copy(update={"min_steps": 30})
    assert (least.epochs_of(33), least.cooldown_of(33), least.steps_of(33)) == (6, 0, 30)
    cooling = least.model_copy(update={"cooldown": 2})
    assert [cooling.cooldown_of(count) for count in (3, 33, 150)] == [30, 6, 2]
    assert cooling.steps_of(3) == 60


def written(learner: Learner, task: int) -> tuple[list[list[int]], list[list[int]]]:
    past = ask_previous_model(learner, task, data_of(learner), Stopwatch(), Progress())
    return past.replay, past.general


@pytest.mark.parametrize("source", ["own", "written"])
def test_general_text_begins_with_tokens_of_the_vocabulary(source: str) -> None:
    settings = {"sampling": {"general": 40}, "kfac": {"source": source}}
    learner = learner_of("kfac_merge", **settings)
    seed, stops = learner.backbone.seed_token, learner.backbone.stop_tokens
    replay, general = written(learner, 1)
    assert replay == []
    firsts = [sequence[0] for sequence in general]
    assert 30 < len(general) <= 40  # but for those that ended at once
    assert len(set(firsts)) > 20
    assert seed not in firsts and not stops & set(firsts)
    # By then S and G hold the untouched model's; what is written anew has new text too.
    replay, general = written(learner, 2)
    assert (len(replay) > 0, len(general) > 0) == ((source == "written"),) * 2
    if source == "written":  # it begins with other tokens before every task
        others = {sequence[0] for sequence in written(learner, 3)[1]}
        second = {sequence[0] for sequence in general}
        assert len(second & others) < min(len(second), len(others)) / 2


def test_general_text_is_written_where_an_anchor_looks_at_it() -> None:
    """What a method does not use says nothing, so that a suite may have one base."""
    learner = learner_of("replay_merge", sampling={"general": 3})
    assert written(learner, 1) == ([], [])
    assert len(written(learner, 2)[0]) > 0
    assert written(learner, 2)[1] == []


def test_curvature_that_is_no_number_refuses_the_task() -> None:
    learner = learner_of("kfac_merge")
    learner.backbone.model.get_input_embeddings().weight.data[5] = float("nan")
    data = TaskData([[5, 6, 7], [8, 9, 10]])
    with pytest.raises(HoldfastError, match=r"task 1.*not finite, the task is not kept"):
        learn_task(learner, data, Progress())
    assert learner.completed == 0


def test_if_every_sample_is_empty_a_task_is_learned_without_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the first one is, and it is said."""
    monkeypatch.setattr("holdfast.learning.task.replay_set", lambda *_, **__: [])
    learner, progress = learner_of("replay_merge"), Watching()
    for task in (1, 2):
        epochs = learn_task(learner, data_of(learner, seed=task), progress).epochs
        assert all(epoch["replay"] == 0 for epoch in epochs)
    assert progress.told == ["task 2: every replay sample was empty; learning it without replay"]


def test_general_text_is_no_replay() -> None:
    """Curvature is taken on both; what the replay loss learns begins with the replay token."""
    settings = {"sampling": {"general": 9}, "kfac": {"source": "written"}}
    learner = learner_of("replay_kfac_merge", **settings)
    past = ask_previous_model(learner, 2, data_of(learner), Stopwatch(), Progress())
    assert past.general
    assert {sequence[0] for sequence in past.replay} == {learner.backbone.seed_token}
    assert past.replay_states is not None
    assert len(past.replay_states.states) == sum(len(sequence) - 1 for sequence in past.replay)


def test_an_answer_begins_with_its_first_token() -> None:
    """One question with two answers: one of the first tokens is never given, all others are."""
    optim = {"acquired": 1.0, "max_steps": 60, "lr": 0.01}
    learner = learner_of("merge", lora={"rank": 8}, optim=optim)
    data = TaskData([[5, 6, 7, 8], [5, 6, 9, 10]], [2, 2])
    report = learn_task(learner, data, Progress())
    assert len(report.epochs) == 60
    assert report.epochs[-1]["acquired"] == 0.75


@pytest.mark.parametrize("append_eos", [False, True])
def test_the_stop_token_is_replayed_where_the_template_trains_on_it(append_eos: bool) -> None:
    sampling = {"samples": 200, "temperature": 3.0, "top_p": 1.0}
    learner = learner_of("replay_merge", sampling=sampling, template={"append_eos": append_eos})
    replay, _ = written(learner, 2)
    stopped = [sequence for sequence in replay if sequence[-1] in learner.backbone.stop_tokens]
    assert len(stopped) < len(replay)
    assert bool(stopped) == append_eos


def test_masks_are_named_by_task_and_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither two steps nor two tasks drop the same."""
    learner, seeds = learner_of("merge"), list[int]()
    forward_pass = learner.backbone.forward_pass

    def spied(*batches: Any, mask_seeds: Any = ()) -> Any:
        seeds.extend(mask_seeds)
        return forward_pass(*batches, mask_seeds=mask_seeds)

    monkeypatch.setattr(learner.backbone, "forward_pass", spied)
    for _ in range(2):
        learn_task(learner, data_of(learner), Progress())
    assert len(seeds) == len(set(seeds)) == 2 * 2 * 3  # tasks, epochs, minibatches


def test_draws_of_curvature_are_named_by_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, draws = learner_of("kfac_merge"), list[tuple[int, str, int]]()
    real = module.curvature_of

    def spied(data: Any) -> Any:
        draws.append(data.draw)
        return real(data)

    monkeypatch.setattr(module, "curvature_of", spied)
    for _ in range(2):
        learn_task(learner, data_of(learner), Progress())
    assert draws == [(learner.config.seed, "own curvature labels", task) for task in (1, 2)]
