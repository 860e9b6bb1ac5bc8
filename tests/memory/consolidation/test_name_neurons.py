"""Facts in neurons at names: where a name ends, a step's plain loss, and going on to the bit."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.seeding import derive
from holdfast.memory.consolidation.names import NamedFact, NamedQuestion, detectors_of_names
from holdfast.memory.consolidation.rehearsal import NeuronRehearsal, NeuronSettings, choose_wording
from holdfast.model.chat import chat_form
from holdfast.model.neurons import FIRES, PARTS, acting, detectors, gated_mlps, mlp_inputs
from holdfast.model.reading import PromptReader
from tests.memory.memories import MONDAY, TUESDAY
from tests.model.chat_models import chat_llama, chat_tokenizer, exact

SETTINGS = NeuronSettings(facts=5, least=12, visits=3)
FACTS = [*MONDAY, *TUESDAY]


def reader_of() -> PromptReader:
    return PromptReader(exact(chat_llama()), chat_form(chat_tokenizer()))


def facts_for(reader: PromptReader) -> list[NamedFact]:
    """Names end at the fifth token of each question, the fourth of its other wording, and the
    first of a corruption.
    """
    form = reader.form
    return [
        NamedFact(
            tuple(form.answer(answer)),
            number // 2,
            (
                NamedQuestion(tuple(form.question(question)), 5),
                NamedQuestion(tuple(form.question(question.lower())), 4),
            ),
            (NamedQuestion(tuple(form.question(question[4:])), 0),),
        )
        for number, (question, answer) in enumerate(FACTS)
    ]


def neurons_for(reader: PromptReader) -> dict[str, Tensor]:
    """With downs that are far from zero."""
    texts = [reader.form.question(text) for text in ("What is rain?", "Tell me of the sea.")]
    mlps = gated_mlps(reader.model)[:2]
    neurons = detectors_of_names(reader, mlps, facts_for(reader), [], texts, [])
    drawn = torch.Generator().manual_seed(3)
    for name, tensor in neurons.items():
        shape = tensor.shape
        made = torch.randn(shape, generator=drawn) / 8 if name.endswith(".down") else tensor
        neurons[name] = made.double()
    return neurons


def run_of(reader: PromptReader, settings: NeuronSettings = SETTINGS) -> NeuronRehearsal:
    return NeuronRehearsal(reader, facts_for(reader), neurons_for(reader), settings, 5)


def test_a_step_minimizes_the_plain_loss() -> None:
    """Passes over whole sequences, the neurons acting at every token, in float64."""
    reader = reader_of()
    run = run_of(reader, replace(SETTINGS, lr=0.0))
    draw = random.Random(derive(5, "neurons", 0))
    chosen = [facts_for(reader)[place] for place in run.fact_numbers()]
    asked = [
        choose_wording((*fact.questions, *fact.corrupted), SETTINGS.varied, draw) for fact in chosen
    ]
    form, losses, mlps = reader.form, [], gated_mlps(reader.model)
    with acting(reader.model, run.neurons):
        for question, fact in zip(asked, chosen, strict=True):
            # Before its name's end a question passes no neuron in the run: none fires there.
            before = [*form.prefix, *question.tokens, *form.invocation]
            ids = torch.tensor([[*before, *fact.answer[:-1]]])
            silent = len(form.prefix) + question.end
            with _from(reader.model, mlps, silent):
                logits = reader.model(ids).logits[0, len(before) - 1 :]
            losses.append(F.cross_entropy(logits, torch.tensor(fact.answer)))
        loss = torch.stack(losses).mean()
        gradients = torch.autograd.grad(loss, list(run.parameters.values()))
    assert run.advance() == pytest.approx(loss.item(), abs=1e-12)
    for parameter, expected in zip(run.parameters.values(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=1e-12)
    assert max(gradient.abs().max() for gradient in gradients) > 1e-4
    assert {question.end for question in asked} == {0, 4, 5}


@contextlib.contextmanager
def _from(model: Any, mlps: list[str], begin: int) -> Iterator[None]:
    """Within the block what MLPs add at the first ``begin`` tokens is the untouched model's."""

    def undo(module: Any, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
        x = given[0]
        untouched_out = module.down_proj(module.act_fn(module.gate_proj(x)) * module.up_proj(x))
        return torch.cat([untouched_out[:, :begin], out[:, begin:]], 1)

    handles = [model.get_submodule(mlp).register_forward_hook(undo) for mlp in mlps]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def test_a_run_goes_on_from_its_state_to_the_same_bits() -> None:
    reader = reader_of()
    whole, first = run_of(reader, SETTINGS), run_of(reader, SETTINGS)
    for _ in range(6):
        whole.advance()
    expected = whole.tensors()
    begun = first.tensors()
    for _ in range(3):
        first.advance()
    for step, tensors in ((3, first.tensors()), (0, begun)):
        neurons = {name: x for name, x in tensors.items() if name.rpartition(".")[2] in PARTS}
        second = NeuronRehearsal(reader_of(), facts_for(reader), neurons, SETTINGS, 5)
        second.resume(step, tensors)
        for _ in range(step, 6):
            second.advance()
        state = second.tensors()
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], expected[name]) for name in expected)


def read_by(
    reader: PromptReader, mlps: list[str], texts: list[tuple[int, ...]], *, alone: bool = False
) -> list[Any]:
    taken: list[Any] = []
    mlp_inputs(reader, mlps, texts, lambda *text: taken.append(text), batch=2, alone=alone)
    return taken


def test_what_fails_while_mlps_are_read_leaves_the_model_whole() -> None:
    reader = reader_of()
    mlps = gated_mlps(reader.model)[:2]
    ids = torch.tensor([reader.form.question("Who?")])
    before = reader.model(ids).logits

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mlp_inputs(reader, mlps, [reader.form.question("Where?")], interrupted)
    assert torch.equal(reader.model(ids).logits, before)
    assert not any(reader.model.get_submodule(mlp)._forward_pre_hooks for mlp in mlps)


def test_neurons_fire_where_their_names_end() -> None:
    """By the means over the wordings; a down of one adds the residual stream's size."""
    reader = reader_of()
    facts = facts_for(reader)
    mlps = gated_mlps(reader.model)[:2]
    neurons = detectors_of_names(reader, mlps, facts, [], [], [])
    asked = [(question, fact.name) for fact in facts for question in fact.questions]
    texts = [question.tokens for question, _ in asked]
    sums = {mlp: torch.zeros(3, 64, dtype=torch.float64) for mlp in mlps}
    counts, stream = torch.zeros(3, 1, dtype=torch.float64), []
    for place, inputs, residual in read_by(reader, mlps, texts):
        question, name = asked[place]
        ids = torch.tensor([[*reader.form.prefix, *question.tokens]])
        plain = _plain_inputs(reader, mlps, ids)
        counts[name] += 1
        stream.append(residual.square().mean(1))
        for mlp in mlps:
            torch.testing.assert_close(inputs[mlp], plain[mlp], rtol=0, atol=1e-12)
            sums[mlp][name] += inputs[mlp][question.end]
    size = torch.cat(stream).median().sqrt()
    for mlp in mlps:
        mean = sums[mlp] / counts
        gates = (neurons[f"{mlp}.gate"].double() @ mean.t()).diagonal()
        ups = (neurons[f"{mlp}.up"].double() @ mean.t()).diagonal()
        torch.testing.assert_close(gates, torch.full_like(gates, FIRES), rtol=1e-5, atol=0)
        torch.testing.assert_close(ups, torch.full_like(ups, size / FIRES), rtol=1e-5, atol=0)


def test_neurons_leave_alone_what_stands_before_questions() -> None:
    """The prefix, which counts once a text behind it, and text alone, which counts three times."""
    reader = reader_of()
    facts, form = facts_for(reader), reader.form
    (mlp,) = mlps = gated_mlps(reader.model)[:1]
    alone = [(1, *form.question("Rain fell."))]
    neurons = detectors_of_names(reader, mlps, facts, [], [], alone)
    texts = [question.tokens for fact in facts for question in fact.questions]
    rows = [inputs[mlp] for _, inputs, _ in read_by(reader, mlps, texts)]
    for text, times in ((form.prefix, len(texts)), (alone[0], 3)):
        ((_, inputs, _),) = read_by(reader, mlps, [text], alone=True)
        plain = _plain_inputs(reader, mlps, torch.tensor([text]), 0)
        torch.testing.assert_close(inputs[mlp], plain[mlp], rtol=0, atol=1e-12)
        rows += [inputs[mlp]] * times
    means = torch.zeros(3, 64, dtype=torch.float64)
    asked = [(question, fact.name) for fact in facts for question in fact.questions]
    names = [name for _, name in asked]
    for place, inputs, _ in read_by(reader, mlps, texts):
        question, name = asked[place]
        means[name] += inputs[mlp][question.end] / names.count(name)
    everything = torch.cat(rows)
    gate, up = detectors(everything.t() @ everything, everything.sum(0), means)
    torch.testing.assert_close(neurons[f"{mlp}.gate"].double(), gate, rtol=1e-5, atol=1e-6)
    learned = neurons[f"{mlp}.up"].double()
    torch.testing.assert_close(learned / learned.norm(), up / up.norm(), rtol=1e-5, atol=1e-6)


def _plain_inputs(
    reader: PromptReader, mlps: list[str], ids: Tensor, begin: int | None = None
) -> dict[str, Tensor]:
    """What MLPs read at the tokens of one row from ``begin`` on, by default behind the prefix."""
    read: dict[str, Tensor] = {}
    start = len(reader.form.prefix) if begin is None else begin
    handles = [
        reader.model.get_submodule(mlp).register_forward_pre_hook(
            lambda _, given, mlp=mlp: read.__setitem__(mlp, given[0][0, start:])
        )
        for mlp in mlps
    ]
    with torch.no_grad():
        reader.model(ids)
    for handle in handles:
        handle.remove()
    return read


def test_a_neuron_leaves_names_alone_that_end_alike() -> None:
    """It fires less at a rival than without it, and as before at its own."""
    reader = reader_of()
    facts = facts_for(reader)[:1]
    mlps = gated_mlps(reader.model)[:1]
    rival = NamedQuestion(tuple(reader.form.question(FACTS[0][0].replace("nets", "cats"))), 20)
    texts = [fact.questions[0].tokens for fact in facts_for(reader)]
    fired = []
    for rivals in ([], [(rival, 100.0)]):
        neurons = detectors_of_names(reader, mlps, facts, rivals, texts, [])
        ((_, inputs, _),) = read_by(reader, mlps, [rival.tokens])
        read = inputs[mlps[0]][rival.end].float()
        fired.append(abs(float(neurons[f"{mlps[0]}.up"] @ read)))
    assert fired[1] < fired[0] / 3
    once = detectors_of_names(reader, mlps, facts, [(rival, 1.0)], texts, [])
    as_text = detectors_of_names(reader, mlps, facts, [], [rival.tokens, *texts], [])
    torch.testing.assert_close(once, as_text)  # the weight is all that tells it from other text
