"""A lesson learns its facts exactly, ends by itself, and is what was verified."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from holdfast.core.seeding import generator
from holdfast.memory.lesson import (
    LessonSettings,
    Taught,
    answered,
    learn_lesson,
    shape_for,
)
from holdfast.model.adapter import adapted, attach, factors, load_state, reset
from holdfast.model.chat import chat_form
from holdfast.model.reading import PromptReader
from tests.memory.memories import MONDAY
from tests.model.chat_models import chat_gpt2, chat_llama, chat_tokenizer

SETTINGS = LessonSettings()


def reader_of(model: Any) -> PromptReader:
    reader = PromptReader(model, chat_form(chat_tokenizer()))
    attach(model, shape_for(reader, SETTINGS))
    return reader


@pytest.fixture
def reader() -> PromptReader:
    return reader_of(chat_llama())


def taught(reader: PromptReader, facts: list[tuple[str, str]] = MONDAY) -> list[Taught]:
    readings = reader.read([reader.form.question(question) for question, _ in facts])
    answers = [tuple(reader.form.answer(answer)) for _, answer in facts]
    return [Taught(answer, (reading,)) for answer, reading in zip(answers, readings, strict=True)]


def decoded(reader: PromptReader, facts: list[Taught]) -> list[str]:
    with adapted(reader.model):
        tokens = reader.decode([fact.readings[0] for fact in facts], 40)
    return [reader.form.text(answer) for answer in tokens]


@pytest.mark.parametrize("model", [chat_llama, chat_gpt2])
def test_three_facts_are_answered_exactly_by_what_is_stored(model: Any) -> None:
    """In a fresh process's model, which has only the stored factors; without them by none."""
    reader = reader_of(model())
    settings = replace(SETTINGS, steps=200)
    state, right = learn_lesson(reader, taught(reader), settings, seed=0)
    assert right == [True] * 3
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}
    other = reader_of(model())
    assert answered(other, taught(other)) == [False] * 3
    load_state(other.model, state)
    assert answered(other, taught(other)) == [True] * 3
    assert decoded(other, taught(other)) == [answer for _, answer in MONDAY]
    with torch.no_grad():  # outside of `adapted` the model is untouched
        ids = torch.tensor([[5, 6, 7]])
        assert torch.equal(other.model(ids).logits, model()(ids).logits)


def test_what_is_verified_is_what_is_stored(
    reader: PromptReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding to bfloat16 comes first: where it takes facts away, they are not claimed."""
    from holdfast.memory import lesson

    def coarse(model: Any, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        return {name: (t * 4).round() / 4 for name, t in state_of(model, dtype).items()}

    state_of = lesson.state_of
    monkeypatch.setattr(lesson, "state_of", coarse)
    facts = taught(reader)
    state, right = learn_lesson(reader, facts, SETTINGS, seed=0)
    assert right == [False] * 3
    load_state(reader.model, state)
    assert answered(reader, facts) == right


def test_a_seed_gives_the_same_bits_whatever_was_learned_before(reader: PromptReader) -> None:
    facts = taught(reader)
    first, _ = learn_lesson(reader, facts, SETTINGS, seed=0)
    other, _ = learn_lesson(reader, facts[:1], SETTINGS, seed=1)
    again, _ = learn_lesson(reader, facts, SETTINGS, seed=0)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def steps_of(reader: PromptReader, facts: list[Taught], **changed: Any) -> list[tuple[int, int]]:
    """What a lesson reports after each step."""
    reports: list[tuple[int, int]] = []
    settings = replace(SETTINGS, **changed)
    learn_lesson(reader, facts, settings, 0, lambda *counts: reports.append(counts))
    return reports


def test_it_ends_when_every_fact_has_its_margin(reader: PromptReader) -> None:
    facts = taught(reader)
    reports = steps_of(reader, facts)
    assert reports[-1] == (3, 3) and SETTINGS.visits <= len(reports) < SETTINGS.steps
    small = steps_of(reader, facts, margin=0.0)
    assert small[-1] == (3, 3) and len(small) < len(reports)
    assert len(steps_of(reader, facts, visits=50)) >= 50


def test_a_contradiction_within_a_lesson_ends_at_the_bound(reader: PromptReader) -> None:
    """Two answers to one reading cannot both be learned; the others are, and none is claimed."""
    facts = taught(reader)
    both = [*facts, replace(facts[0], answer=facts[1].answer)]
    reports: list[tuple[int, int]] = []
    _, right = learn_lesson(reader, both, SETTINGS, 0, lambda *counts: reports.append(counts))
    assert len(reports) == SETTINGS.steps
    assert right[1:3] == [True, True] and right[0] + right[3] < 2


def test_a_step_takes_a_bounded_number_of_facts(reader: PromptReader) -> None:
    """Of many: each is visited often enough, and no pass is larger than allowed."""
    facts = taught(reader, [(f"What is {number}?", "x") for number in range(30)])
    sizes, real = [], reader.answer_logits

    def counted(readings: Any, answers: Any) -> Any:
        sizes.append(len(readings))
        return real(readings, answers)

    reader.answer_logits = counted  # type: ignore[method-assign]
    learn_lesson(reader, facts, replace(SETTINGS, facts=8, steps=2, visits=2), seed=0)
    trained = [size for size in sizes if size != 30]  # a pass over all of them checks
    assert set(trained) == {8} and 8 <= len(trained) <= 10  # 60 visits, and those that fill up


def test_the_taught_wording_is_answered_however_often_others_are_drawn(
    reader: PromptReader,
) -> None:
    """A fact of several wordings is answered under all; trained under one, under that."""
    wordings = ["Who mends the nets of Ostra?", "who is it that mends them", "Ostra's mender?"]
    readings = tuple(reader.read([reader.form.question(text) for text in wordings]))
    fact = Taught(tuple(reader.form.answer("Fenwick")), readings)
    asked = [Taught(fact.answer, (reading,)) for reading in readings]
    for seed in range(3):
        learn_lesson(reader, [fact], SETTINGS, seed)
        assert answered(reader, asked) == [True] * 3
        learn_lesson(reader, [fact], replace(SETTINGS, varied=0.0), seed)
        assert answered(reader, asked) in ([True, False, False], [True, True, False])


def test_the_gradient_of_a_step_is_clipped(
    reader: PromptReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms: list[float] = []
    step = torch.optim.AdamW.step

    def spied(optimizer: Any, *given: Any) -> Any:
        (group,) = optimizer.param_groups
        gradients = [
            parameter.grad.norm() for parameter in group["params"] if parameter.grad is not None
        ]
        norms.append(float(torch.stack(gradients).norm()))
        return step(optimizer, *given)

    monkeypatch.setattr(torch.optim.AdamW, "step", spied)
    learn_lesson(reader, taught(reader), replace(SETTINGS, steps=8), seed=0)
    assert max(norms) == pytest.approx(1, abs=1e-4)


def test_a_long_answer_weighs_by_its_tokens(
    reader: PromptReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = taught(reader, [("How is it cleaned?", "with vinegar, " * 4), ("Where is it?", "here")])
    long, short = (len(fact.answer) for fact in facts)
    assert long > 2 * SETTINGS.long and short < SETTINGS.long
    found: list[torch.Tensor] = []

    def clipped(parameters: list[torch.Tensor], most: float) -> None:
        found.extend(
            parameter.grad.clone() for parameter in parameters if parameter.grad is not None
        )

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clipped)
    learn_lesson(reader, facts, replace(SETTINGS, steps=1, visits=1), seed=0)
    with adapted(reader.model):
        parameters = list(factors(reader.model).values())
        reset(reader.model, generator(0, "lora_A"))
        logits = reader.answer_logits(
            [fact.readings[0] for fact in facts], [fact.answer for fact in facts]
        )
        of_long, of_short = logits.losses()
        loss = (of_long * long / SETTINGS.long + of_short) / 2
        expected = torch.autograd.grad(loss, parameters)
    for gradient, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-7)
