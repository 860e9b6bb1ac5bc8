"""How long a task is trained, what its tokens weigh, and what is written beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.learning import boundary
from holdfast.learning import learner as module
from holdfast.learning.boundary import ask_previous_model, learn_task
from holdfast.learning.config import Optimisation, RunConfig
from holdfast.learning.learner import Learner, Lesson
from holdfast.learning.objective import Weights
from holdfast.learning.progress import OptimiserStep, Progress, Stopwatch
from holdfast.learning.training import _acquired, weights_of
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


def lesson_of(learner: Learner, past_items: int = 0, seed: int = 1) -> Lesson:
    sequences = short_sequences(ITEMS, seed, first=learner.backbone.seed_token)
    return Lesson(sequences, [len(sequence) - 2 for sequence in sequences], past_items)


def weights(learner: Learner, task: int, past_items: int) -> Weights:
    lesson = lesson_of(learner, past_items)
    past = ask_previous_model(learner, task, lesson, Stopwatch(), Progress())
    return weights_of(learner, task, lesson, past)


def test_the_papers_weights_are_the_default() -> None:
    """L_SFT alone without a past, (1 - w) and w beside replay, however many items there were."""
    replay = {"replay": {"weight": 0.6}}
    assert weights(learner_of("merge"), 2, 94) == Weights(1.0, 1.0, 0.0)
    assert weights(learner_of("replay_merge", **replay), 1, 0) == Weights(1.0, 1.0, 0.0)
    assert weights(learner_of("replay_merge", **replay), 2, 94) == Weights(0.4, 0.4, 0.6)


def test_a_share_gives_every_item_as_much_as_the_others() -> None:
    """Six items after ninety-four are six of a hundred; the replay loss weighs the rest."""
    shared = {"replay": {"weight": 0.6}, "balance": {"share": True}}
    assert weights(learner_of("replay_merge", **shared), 2, 94) == Weights(0.06, 0.06, 0.94)
    # Six after three are two thirds, whatever the replay weight says.
    assert weights(learner_of("replay_merge", **shared), 2, 3) == Weights(2 / 3, 2 / 3, 1 - 2 / 3)
    split = {**shared, "balance": {"share": True, "answers": 0.5}}
    assert weights(learner_of("replay_merge", **split), 2, 94) == Weights(0.06, 0.5, 0.94)
    assert weights(learner_of("replay_merge", **split), 1, 0) == Weights(1.0, 1.0, 0.0)


def test_without_replay_the_questions_may_be_given_a_weight() -> None:
    capped = {"balance": {"questions": 0.15}}
    assert weights(learner_of("kfac_merge", **capped), 2, 3) == Weights(0.15, 0.15, 0.0)
    shared = {"balance": {"questions": 0.15, "share": True}}
    assert weights(learner_of("kfac_merge", **shared), 2, 94) == Weights(0.06, 0.06, 0.0)
    with pytest.raises(HoldfastError, match=r"balance\.questions: replay\.weight says it"):
        learner_of("replay_merge", **capped)


def test_training_goes_on_until_the_task_is_acquired() -> None:
    optim = {"acquired": 1.0, "max_steps": 300, "lr": 0.01}
    learner = learner_of("merge", lora={"rank": 8}, optim=optim)
    report = learn_task(learner, lesson_of(learner), Progress())
    acquired = [epoch["acquired"] for epoch in report.epochs]
    assert 2 < len(acquired) < 100
    assert acquired[-1] == 1.0
    assert all(share < 1.0 for share in acquired[1:-1])  # two epochs are the least


def test_and_at_most_for_so_many_steps() -> None:
    learner = learner_of("merge", optim={"acquired": 1.0, "max_steps": 10, "lr": 1e-6})
    report = learn_task(learner, lesson_of(learner), Progress())
    assert len(report.epochs) == 4  # of three steps each
    assert report.epochs[-1]["acquired"] < 1.0


def test_the_warmup_is_a_part_of_the_least_epochs() -> None:
    """How long a task goes on is not known when it begins."""
    optim = {"acquired": 1.0, "max_steps": 12, "lr": 1e-6, "warmup": 0.5}
    learner, rates = learner_of("merge", optim=optim), list[float]()

    class Watching(Progress):
        def optimised(self, step: OptimiserStep) -> None:
            rates.append(step.rate)

    assert learn_task(learner, lesson_of(learner), Watching()).steps == 12
    assert rates == pytest.approx([1e-6 / 3, 2e-6 / 3, *[1e-6] * 10])  # half of two epochs' six


def test_a_float32_that_was_reached_counts() -> None:
    optim = Optimisation(acquired=0.9)
    assert _acquired(optim, {"acquired": float(torch.tensor(0.9))})
    assert not _acquired(optim, {"acquired": 0.899})


def test_a_cooldown_follows_what_was_acquired() -> None:
    learner = learner_of(
        "merge", optim={"acquired": 1.0, "max_steps": 10, "lr": 1e-6, "cooldown": 3}
    )
    rates: list[float] = []

    class Watching(Progress):
        def optimised(self, step: OptimiserStep) -> None:
            rates.append(step.rate)

    report = learn_task(learner, lesson_of(learner), Watching())
    assert len(report.epochs) == 4 + 3 and report.steps == len(rates) == 7 * 3
    assert rates[11:] == pytest.approx([1e-6, *(1e-6 * (9 - k) / 9 for k in range(9))])


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


@pytest.mark.parametrize(
    ("section", "name", "value"), [("optim", "cooldown", 2), ("lora", "layers", (1,))]
)
def test_runs_that_knew_a_setting_not_yet_keep_their_identity(section, name, value) -> None:
    assert name not in RunConfig.of({"method": "vanilla"}).numbers()[section]
    set_ = RunConfig.of({"method": "vanilla", section: {name: value}})
    assert set_.numbers()[section][name] == (list(value) if name == "layers" else value)


def written(learner: Learner, task: int) -> tuple[list[list[int]], list[list[int]]]:
    past = ask_previous_model(learner, task, lesson_of(learner), Stopwatch(), Progress())
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


def test_general_text_is_written_where_an_anchor_looks_at_it() -> None:
    """What a method does not use says nothing, so that a suite may have one base."""
    learner = learner_of("replay_merge", sampling={"general": 3})
    assert written(learner, 1) == ([], [])
    assert len(written(learner, 2)[0]) > 0
    assert written(learner, 2)[1] == []


def test_curvature_that_is_no_number_refuses_the_task() -> None:
    learner = learner_of("kfac_merge")
    learner.backbone.model.get_input_embeddings().weight.data[5] = float("nan")
    lesson = Lesson([[5, 6, 7], [8, 9, 10]])
    with pytest.raises(HoldfastError, match=r"task 1.*not finite, the task is not kept"):
        learn_task(learner, lesson, Progress())
    assert learner.completed == 0


def test_if_every_sample_is_empty_a_task_is_learned_without_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the first one is, and it is said."""
    monkeypatch.setattr(boundary, "replay_set", lambda *_, **__: [])
    learner, told = learner_of("replay_merge"), list[str]()

    class Watching(Progress):
        def event(self, text: str) -> None:
            told.append(text)

    for task in (1, 2):
        epochs = learn_task(learner, lesson_of(learner, seed=task), Watching()).epochs
        assert all(epoch["replay"] == 0 for epoch in epochs)
    assert told == ["task 2: every replay sample was empty; learning it without replay"]


def test_general_text_is_no_replay() -> None:
    """Curvature is taken on both; what the replay loss learns begins with the replay token."""
    settings = {"sampling": {"general": 9}, "kfac": {"source": "written"}}
    learner = learner_of("replay_kfac_merge", **settings)
    past = ask_previous_model(learner, 2, lesson_of(learner), Stopwatch(), Progress())
    assert past.general
    assert {sequence[0] for sequence in past.replay} == {learner.backbone.seed_token}
    assert past.replay_states is not None
    assert len(past.replay_states.states) == sum(len(sequence) - 1 for sequence in past.replay)


def test_an_answer_begins_with_its_first_token() -> None:
    """One question with two answers: one of the first tokens is never given, all others are."""
    optim = {"acquired": 1.0, "max_steps": 60, "lr": 0.01}
    learner = learner_of("merge", lora={"rank": 8}, optim=optim)
    lesson = Lesson([[5, 6, 7, 8], [5, 6, 9, 10]], [2, 2])
    report = learn_task(learner, lesson, Progress())
    assert len(report.epochs) == 60
    assert report.epochs[-1]["acquired"] == 0.75


def test_general_text_begins_with_other_tokens_before_every_task() -> None:
    settings = {"sampling": {"general": 40}, "kfac": {"source": "written"}}
    learner = learner_of("kfac_merge", **settings)
    second, third = ({text[0] for text in written(learner, task)[1]} for task in (2, 3))
    assert len(second & third) < min(len(second), len(third)) / 2


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
    project = learner.project

    def spied(*parts: Any, mask_seeds: Any = ()) -> Any:
        seeds.extend(mask_seeds)
        return project(*parts, mask_seeds=mask_seeds)

    monkeypatch.setattr(learner, "project", spied)
    for _ in range(2):
        learn_task(learner, lesson_of(learner), Progress())
    assert len(seeds) == len(set(seeds)) == 2 * 2 * 3  # tasks, epochs, minibatches


def test_draws_of_curvature_are_named_by_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, draws = learner_of("kfac_merge"), list[tuple[int, str, int]]()
    real = module.curvature_of

    def spied(data: Any) -> Any:
        draws.append(data.draw)
        return real(data)

    monkeypatch.setattr(module, "curvature_of", spied)
    for _ in range(2):
        learn_task(learner, lesson_of(learner), Progress())
    assert draws == [(learner.config.seed, "own curvature labels", task) for task in (1, 2)]
