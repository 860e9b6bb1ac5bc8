"""A step's loss is the plain one; a run goes on from its state to the same bits."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from holdfast.core.seeding import derive
from holdfast.memory.consolidation import rehearsal as module
from holdfast.memory.consolidation.own_texts import Turn
from holdfast.memory.consolidation.rehearsal import (
    ConsolidationSettings,
    Rehearsal,
    UntouchedAnswers,
    answers_behind,
    choose_wording,
)
from holdfast.model.adapter import adapted, attach, factors, shape_on, state_of
from holdfast.model.chat import chat_form
from holdfast.model.reading import PromptReader
from tests.memory.memories import MONDAY, TUESDAY
from tests.model.chat_models import chat_llama, chat_tokenizer, exact

SETTINGS = ConsolidationSettings(facts=2, least=12, visits=3, short=2, named=1, chats=1)


def reader_of(precision: torch.dtype = torch.float64) -> PromptReader:
    reader = PromptReader(exact(chat_llama()), chat_form(chat_tokenizer()))
    attach(reader.model, shape_on(reader.model, 1, rank=4, alpha=8))
    reader.model.to(precision)
    return reader


def turn(reader: PromptReader, kind: str, question: str, answer: str) -> Turn:
    return Turn(kind, tuple(reader.form.question(question)), tuple(reader.form.answer(answer)))


def facts_for(reader: PromptReader) -> list[list[Turn]]:
    return [
        [turn(reader, "fact", text, answer) for text in (question, question.lower())]
        for question, answer in [*MONDAY, *TUESDAY]
    ]


def own_texts_for(reader: PromptReader) -> list[Turn]:
    return [
        *(turn(reader, "short", f"What is {name}?", f"{name} is") for name in "abcd"),
        *(turn(reader, "named", f"Where does Ann {name} live?", "far") for name in "pq"),
        *(turn(reader, "chats", f"Tell of {name}", "long ago there was one") for name in "xyz"),
    ]


def run_of(reader: PromptReader, settings: ConsolidationSettings, seed: int = 5) -> Rehearsal:
    return Rehearsal(reader, facts_for(reader), own_texts_for(reader), settings, seed)


@pytest.mark.parametrize("tokens", [60, 9999])
def test_a_step_minimizes_the_plain_loss(tokens: int) -> None:
    """Its two terms and its gradient, text by text, in float64, however many a pass has."""
    settings = replace(SETTINGS, lr=0.0, tokens=tokens)
    reader = reader_of()
    run = run_of(reader, settings)
    drawn = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for lora_b in list(factors(reader.model).values())[1::2]:
            lora_b.copy_(torch.randn(lora_b.shape, generator=drawn) / 8)
    draw = random.Random(derive(5, "consolidation", 0))
    facts = facts_for(reader)
    asked = [choose_wording(facts[n], settings.varied, draw) for n in run.fact_numbers()]
    kinds = ("short", "named", "replaced", "chats")
    texts = [text for kind in kinds for text in run._drawn(kind, draw)]
    form = reader.form

    def logits(turn: Turn) -> torch.Tensor:
        whole = [*form.prefix, *turn.question, *form.invocation, *turn.answer[:-1]]
        rows: torch.Tensor = reader.model(torch.tensor([whole])).logits[0, -len(turn.answer) :]
        return rows

    with torch.no_grad():
        teacher = list(map(logits, texts))
    with adapted(reader.model):
        fits = [F.cross_entropy(logits(turn), torch.tensor(turn.answer)) for turn in asked]
        apart = []
        for text, before in zip(texts, teacher, strict=True):
            p = before.softmax(1)
            q = logits(text).softmax(1)
            apart.append((p * (p.log() - q.log())).sum(1))
        fit, kl = torch.stack(fits).mean(), torch.cat(apart).mean()
        total = fit + settings.weight * kl
        parameters = list(factors(reader.model).values())
        gradients = torch.autograd.grad(total, parameters)
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    assert kl > 0.01
    assert run.advance() == pytest.approx((fit.item(), kl.item()), abs=1e-12)
    clip = min(1.0, 1.0 / (norm.item() + 1e-6))
    for parameter, expected in zip(parameters, gradients, strict=True):
        torch.testing.assert_close(parameter.grad, expected * clip, rtol=0, atol=1e-12)


def test_every_fact_is_visited_equally_often() -> None:
    run = run_of(reader_of(), SETTINGS)
    visits: Counter[int] = Counter()
    assert run.steps == 12
    for run.step in range(10):
        visits.update(run.fact_numbers())
    assert visits == dict.fromkeys(range(5), 4)


@pytest.mark.parametrize(("varied", "expected"), [(1.0, {"b", "c"}), (0.0, {"a"})])
def test_as_often_as_varied_another_wording_is_taken(varied: float, expected: set[str]) -> None:
    draw = random.Random(1)
    assert {choose_wording("abc", varied, draw) for _ in range(50)} == expected
    assert choose_wording("a", varied, draw) == "a"


def test_the_rate_rises_and_falls_to_its_floor() -> None:
    run = run_of(reader_of(), replace(SETTINGS, least=100, lr=1e-3, floor=0.1))
    rates = []
    for run.step in range(101):
        run.begin_step()
        rates.append(run._optimizer.param_groups[0]["lr"])
    assert rates[0] == pytest.approx(1e-4, rel=0.01)
    assert max(rates) == pytest.approx(1e-3, rel=0.03) and rates.index(max(rates)) == 9
    assert rates[-1] == pytest.approx(1e-4)


def test_a_run_goes_on_from_its_state_to_the_same_bits() -> None:
    reader = reader_of()
    whole = run_of(reader, SETTINGS)
    for _ in range(4):
        whole.advance()
    expected = state_of(reader.model, torch.float64)
    first = run_of(reader, SETTINGS)
    begun = first.tensors()
    for _ in range(2):
        first.advance()
    reached = first.tensors()
    for step, tensors in ((2, reached), (0, begun)):
        second = run_of(reader_of(), SETTINGS)
        second.resume(step, tensors)
        for _ in range(step, 4):
            second.advance()
        state = state_of(second._reader.model, torch.float64)
        assert all(torch.equal(state[name], expected[name]) for name in expected)


def test_it_goes_on_in_the_precision_that_it_began_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half precision where that is faster, whatever the processor says later."""
    runs = {}
    for pays, later in ((True, False), (False, True)):
        monkeypatch.setattr(module, "bfloat16_pays", lambda pays=pays: pays)
        reader = reader_of(torch.float32)
        run = run_of(reader, SETTINGS)
        first = run.advance()
        reached = run.tensors()
        rest = [run.advance() for _ in range(2)]
        monkeypatch.setattr(module, "bfloat16_pays", lambda later=later: later)
        again = run_of(reader_of(torch.float32), SETTINGS)
        again.resume(1, reached)
        assert [again.advance() for _ in range(2)] == rest
        runs[pays] = first
    half, plain = runs[True], runs[False]
    assert half != plain
    assert half == pytest.approx(plain, abs=0.05)


@pytest.mark.parametrize(("pays", "expected"), [(True, "eager"), (False, "sdpa")])
def test_attention_is_plain_in_half_precision_alone(
    pays: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And after a step it is as it was."""
    monkeypatch.setattr(module, "bfloat16_pays", lambda: pays)
    reader = reader_of(torch.float32)
    run, config, used = run_of(reader, SETTINGS), reader.model.config, []
    reader.model.register_forward_pre_hook(lambda *_: used.append(config._attn_implementation))
    run.advance()
    assert expected in used
    assert ("eager" in used) == pays
    assert config._attn_implementation == "sdpa"


def test_a_model_in_double_precision_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "bfloat16_pays", lambda: True)
    assert run_of(reader_of(), SETTINGS).advance()[1] == pytest.approx(0.0, abs=1e-12)


def test_what_it_said_is_what_it_says() -> None:
    """Also where a model does something behind its head, such as a cap on logits."""
    reader = reader_of()
    turns = own_texts_for(reader)

    def cap(_: object, __: object, out: Any) -> Any:
        out.logits = 3 * torch.tanh(out.logits / 3)
        return out

    with reader.model.register_forward_hook(cap):
        untouched = UntouchedAnswers(reader)
        untouched.read(turns)
        expected = answers_behind(reader, turns[::2]).logits
        with adapted(reader.model):
            torch.testing.assert_close(untouched.logits(turns[::2]), expected, rtol=0, atol=1e-12)


def test_its_own_texts_are_read_once_and_only_when_a_step_draws_them() -> None:
    reader = reader_of()
    run, read = run_of(reader, SETTINGS), []

    def note(_: object, __: object, given: dict[str, Any]) -> None:
        ids = given.get("input_ids")  # a pass over turns; of one token is none that reads
        if ids is not None and ids.shape[1] > 1 and not torch.is_grad_enabled():
            read.append(len(ids))

    reader.model.base_model.register_forward_pre_hook(note, with_kwargs=True)
    drawn: set[Turn] = set()
    while run.step < 6:
        draw = random.Random(derive(5, "consolidation", run.step))
        for n in run.fact_numbers():
            choose_wording(run._facts[n], SETTINGS.varied, draw)
        drawn |= {text for kind in ("short", "named", "chats") for text in run._drawn(kind, draw)}
        run.advance()
        assert read == [1] * len(drawn)
