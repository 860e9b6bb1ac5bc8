"""Whole tasks of the reference learner on a tiny random model."""

import copy
import dataclasses

import pytest
import torch

from reference import adapters, allocation, replay
from reference.learner import run_task
from reference.objective import backpropagate
from reference.optimisation import accumulation_windows, optimise
from reference.sequences import logits_of, pad_right, sft_loss
from reference.state import Settings, State, Task

RULES = ("shared", "merged", "o_lora", "osrm")
EVERY_ANCHOR = dict(replay_weight=0.5, function_strength=1.0, si_strength=1.0, ewc_strength=10.0)


def settings_for(rule, **changes):
    return Settings(
        target_modules=("q_proj", "v_proj", "down_proj"),
        rank=2,
        alpha=4,
        allocation=rule,
        dropout=0.0,
        learning_rate=5e-3,
        norm_strength=0.01,
        **changes,
    )


def task_of(sequences, number):
    """Two epochs of four minibatches, replayed from the teacher's own samples."""
    minibatches = [sequences[i : i + 2] for i in range(0, 8, 2)]

    def sampled(teacher):
        torch.manual_seed(number)
        drawn = replay.generate(teacher, 63, 6, 1.5, 0.9, 6, eos_id=None, pad_id=0, batch_size=6)
        return replay.paired_minibatches(
            drawn, 2, 4, 2, lambda *_: torch.randperm(len(drawn)).tolist()
        )

    shifted = [[[s[0], *(1 + (t + number) % 61 for t in s[1:])] for s in m] for m in minibatches]
    return Task(
        sequences=[s for m in shifted for s in m],
        minibatches=shifted * 2,
        minibatches_per_epoch=4,
        replay_minibatches=sampled,
    )


def logits(model, sequences):
    input_ids, mask = pad_right(sequences, pad_id=0)
    with torch.no_grad():
        return logits_of(model, input_ids, mask)


@pytest.mark.parametrize("rule", RULES)
def test_three_tasks_with_every_anchor(model, sequences, rule):
    settings = settings_for(rule, **EVERY_ANCHOR)
    state = State(backbone=model)
    pretrained = copy.deepcopy(model)
    for number in range(3):
        task = task_of(sequences, number)
        result = run_task(state, settings, task)
        names = set(result.steps[0])
        anchors = {"replay", "function", "si", "ewc"}
        assert names & anchors == (anchors if number else set())
        # Step 4 sees the first minibatch again.
        assert result.steps[4]["sft"] < result.steps[0]["sft"]
        if number:
            # The student starts as its teacher; only the reset makes the weight anchors jump.
            assert result.steps[0]["function"] == pytest.approx(0, abs=1e-9)
            assert result.steps[-1]["function"] > 0
            assert all(result.steps[-1][name] > 0 for name in anchors)
            assert (result.steps[0]["si"] == 0) == (rule == "shared")
        if rule == "o_lora":
            assert (result.steps[0]["overlap"] > 0) == (number > 0)

        represented = copy.deepcopy(pretrained)
        for module, W in result.dense.items():
            represented.get_submodule(module).weight.data = W
        torch.testing.assert_close(
            logits(represented, sequences), logits(result.model, sequences), rtol=1e-5, atol=1e-5
        )
        for value in state.importance.values():
            assert (value >= 0).all()
    assert state.completed == 3
    assert len(state.past) == (3 if rule == "o_lora" else 0)
    assert {len(means) for means in state.features.values()} == ({3} if rule == "osrm" else set())


def test_osrm_opens_in_the_null_space(model, sequences):
    state = State(backbone=model)
    settings = dataclasses.replace(settings_for("osrm"), learning_rate=0.0)
    run_task(state, settings, task_of(sequences, 0))
    result = run_task(state, settings, task_of(sequences, 1))
    for module, (A, B) in result.factors.items():
        assert float((A @ state.features[module][0]).abs().max()) < 1e-6
        assert float(A.norm()) > 0.1 and float(B.norm()) == 0


def test_given_factors_are_the_start(model, sequences):
    draws = {
        module: (torch.randn_like(A), torch.zeros_like(B))
        for module, (A, B) in adapters.factors(
            adapters.attach(copy.deepcopy(model), ("q_proj",), 2, 4)
        ).items()
    }
    settings = dataclasses.replace(
        settings_for("merged"), target_modules=("q_proj",), learning_rate=0.0
    )
    task = dataclasses.replace(task_of(sequences, 0), initial_factors=draws)
    result = run_task(State(backbone=model), settings, task)
    for module, (A, B) in draws.items():
        assert torch.equal(result.factors[module][0], A)
        assert torch.equal(result.factors[module][1], B)


def test_accumulation_windows():
    assert accumulation_windows(list("abcde"), 2) == [["a", "b"], ["c", "d"], ["e"]]
    assert accumulation_windows(list("abcdef"), 2, 3) == [["a", "b"], ["c"], ["d", "e"], ["f"]]


@pytest.mark.parametrize("size", [2, 3])
def test_a_window_is_the_mean_of_its_minibatches(model, sequences, size):
    """Also an incomplete one; O-LoRA's penalty is added whole, after the mean."""
    generator = torch.Generator().manual_seed(5)

    def random_pair(A, B):
        return tuple(
            torch.randn(factor.shape, generator=generator, dtype=factor.dtype) for factor in (A, B)
        )

    empty = adapters.attach(copy.deepcopy(model), ("q_proj",), 2, 4)
    past = [{name: random_pair(*pair) for name, pair in adapters.factors(empty).items()}]
    student = adapters.attach(model, ("q_proj",), 2, 4, past=past)
    adapters.write(
        student, {name: random_pair(*pair) for name, pair in adapters.factors(student).items()}
    )
    settings = settings_for("o_lora", accumulation=3, si_strength=1.0)
    state = State(backbone=model, past=past, completed=1)
    pairs = [(sequences[2 * i : 2 * i + 2], None) for i in range(size)]
    captured, _ = backpropagate(student, None, pairs, state, settings)
    theta = adapters.coordinates(student)
    whole = {name: value.grad.clone() for name, value in theta.items()}

    student.zero_grad()
    loss = 0.0
    for minibatch, _ in pairs:
        input_ids, mask = pad_right(minibatch, pad_id=0)
        loss = loss + sft_loss(logits_of(student, input_ids, mask), input_ids, mask) / size
    fit = torch.autograd.grad(loss, list(theta.values()), retain_graph=True)
    current = adapters.factors(student)
    for name, (A, B) in current.items():
        loss = loss + 0.5 * (past[0][name][0] @ A.T).abs().sum()
        loss = loss + 0.01 * (A.norm() + B.norm())
    loss.backward()
    for (name, value), gradient in zip(theta.items(), fit, strict=True):
        torch.testing.assert_close(captured[name], gradient, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(whole[name], value.grad, rtol=1e-5, atol=1e-7)

    projected = dataclasses.replace(settings, project_gradient=True)
    student.zero_grad()
    backpropagate(student, None, pairs, state, projected)
    for name, pair in past[0].items():
        assert float((theta[f"{name}.A"].grad @ pair[0].T).abs().max()) < 1e-6
        torch.testing.assert_close(
            theta[f"{name}.A"].grad, allocation.project_gradient(whole[f"{name}.A"], pair[0])
        )


def test_path_gradient_under_o_lora_leaves_replay_out(model, sequences):
    """SI sees the whole fit term, except under O-LoRA: (1 - w) of the current data's gradient."""
    teacher = copy.deepcopy(model)
    student = adapters.attach(model, ("q_proj",), 2, 4)
    theta = adapters.coordinates(student)
    with torch.no_grad():
        for value in theta.values():
            value.add_(0.1)
    pairs = [(sequences[:2], sequences[2:4])]
    state = State(backbone=model)

    def capture(rule, w):
        settings = settings_for(rule, si_strength=1.0, replay_weight=w)
        student.zero_grad()
        return backpropagate(student, teacher, pairs, state, settings)[0]

    sft = capture("shared", 0.0)
    kl = capture("shared", 1.0)
    mixed = capture("shared", 0.25)
    alone = capture("o_lora", 0.25)
    for name in theta:
        torch.testing.assert_close(mixed[name], 0.75 * sft[name] + 0.25 * kl[name])
        torch.testing.assert_close(alone[name], 0.75 * sft[name])
    assert any(float(value.abs().max()) > 1e-3 for value in kl.values())


def test_path_sums_to_the_loss_decrease(model, sequences):
    """With small steps on one repeated minibatch, omega adds up to what the loss fell by."""
    student = adapters.attach(model, ("q_proj", "down_proj"), 2, 4)
    settings = dataclasses.replace(
        settings_for("shared", si_strength=1.0), learning_rate=1e-4, clip=0.01
    )
    task = Task(sequences=sequences, minibatches=[sequences[:4]] * 30)
    path, steps = optimise(student, None, None, State(backbone=model), settings, task)
    decrease = steps[0]["fit"] - steps[-1]["fit"]
    # The last step's own share is not yet in the last loss seen.
    assert decrease > 1e-3
    total = sum(float(value.sum()) for value in path.values())
    assert total == pytest.approx(decrease * 30 / 29, rel=0.15)
