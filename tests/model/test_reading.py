"""Answers behind kept keys and values are those of plain passes over whole sequences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import get_peft_model, set_peft_model_state_dict
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    MistralForCausalLM,
)

from holdfast.model.adapter import (
    adapted,
    attach,
    factors,
    load_state,
    reset,
    shape_like,
    shape_on,
    state_of,
)
from holdfast.model.chat import chat_form
from holdfast.model.layers import layer_of
from holdfast.model.reading import PromptReader, Reading, logits_at
from tests.model.chat_models import chat_gpt2, chat_llama, chat_tokenizer, exact
from tests.tiny import drawn

MODELS = {"llama": chat_llama, "gpt2": chat_gpt2}
QUESTIONS = ["Who?", "What is the other key of the mill in Ostra?", "Where is the brass key?"]
ANSWERS = ["Ann", "x", "in the upper drawer"]


@pytest.fixture(params=MODELS)
def reader(request: pytest.FixtureRequest) -> PromptReader:
    """In float64, untouched."""
    return PromptReader(exact(MODELS[request.param]()), chat_form(chat_tokenizer()))


def with_adapter(reader: PromptReader) -> dict[str, torch.Tensor]:
    """Attach an adapter whose update is far from zero; its factors."""
    attach(reader.model, shape_on(reader.model, 1, rank=4, alpha=8))
    reader.model.double()
    drawn = torch.Generator().manual_seed(1)
    reset(reader.model, drawn)
    with torch.no_grad():
        for lora_b in list(factors(reader.model).values())[1::2]:
            lora_b.copy_(torch.randn(lora_b.shape, generator=drawn) / 4)
    return state_of(reader.model, torch.float64)


def asked(reader: PromptReader, questions: list[str] = QUESTIONS) -> list[list[int]]:
    return [reader.form.question(question) for question in questions]


def answers(reader: PromptReader) -> list[list[int]]:
    return [reader.form.answer(answer) for answer in ANSWERS]


def whole(reader: PromptReader, question: str) -> list[int]:
    form = reader.form
    return [*form.prefix, *form.question(question), *form.invocation]


def plain_logits(model: nn.Module, before: list[int], answer: list[int]) -> torch.Tensor:
    """Logits at an answer's tokens, by one pass over everything."""
    with torch.no_grad():
        logits = model(torch.tensor([[*before, *answer[:-1]]])).logits
    return logits[0, len(before) - 1 :]


def test_logits_are_those_of_a_pass_without_caches(reader: PromptReader) -> None:
    logits = reader.answer_logits(reader.read(asked(reader)), answers(reader))
    assert logits.logits.dtype == torch.float64
    for number, (question, answer) in enumerate(zip(QUESTIONS, answers(reader), strict=True)):
        rows = logits.answer == number
        plain = plain_logits(reader.model, whole(reader, question), answer)
        torch.testing.assert_close(logits.logits[rows], plain, rtol=0, atol=1e-11)
        assert logits.targets[rows].tolist() == answer
        losses = nn.functional.cross_entropy(plain, torch.tensor(answer))
        torch.testing.assert_close(logits.losses()[number], losses, rtol=0, atol=1e-11)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT reads it
def test_an_adapter_is_an_activated_lora_of_peft(reader: PromptReader) -> None:
    """The same factors in PEFT's own, over the whole sequence; they change the logits."""
    state = with_adapter(reader)
    readings = reader.read(asked(reader))
    untouched = reader.answer_logits(readings, answers(reader))
    with adapted(reader.model):
        logits = reader.answer_logits(readings, answers(reader))
    assert (logits.logits - untouched.logits).abs().max() > 0.1
    model = MODELS["gpt2" if "transformer" in next(iter(state)) else "llama"]()
    config = shape_on(model, 1, rank=4, alpha=8).config(reader.form.invocation)
    activated = get_peft_model(exact(model), config).double()
    named = {f"base_model.model.{name}.weight": value for name, value in state.items()}
    set_peft_model_state_dict(activated, named)
    for number, (question, answer) in enumerate(zip(QUESTIONS, answers(reader), strict=True)):
        plain = plain_logits(activated, whole(reader, question), answer)
        torch.testing.assert_close(logits.logits[logits.answer == number], plain, rtol=0, atol=1e-9)


def test_factors_begin_with_a_standard_deviation_by_the_width(reader: PromptReader) -> None:
    """A's entries have 1 / sqrt(d_in), whatever the rank, and B is zero whatever it was."""
    with_adapter(reader)
    reset(reader.model, torch.Generator().manual_seed(2))
    source = torch.Generator().manual_seed(2)
    for name, factor in factors(reader.model).items():
        if name.endswith("lora_B"):
            assert not factor.any()
            continue
        drawn = torch.randn(factor.shape, generator=source) / factor.shape[1] ** 0.5
        torch.testing.assert_close(factor.detach(), drawn.double(), rtol=1e-6, atol=0)


def test_adapters_are_switched_off_again(reader: PromptReader) -> None:
    """Also where what they were on for fails."""
    with_adapter(reader)
    readings = reader.read(asked(reader))
    before = reader.answer_logits(readings, answers(reader)).logits
    with pytest.raises(KeyError), adapted(reader.model):
        raise KeyError
    assert reader.answer_logits(readings, answers(reader)).logits.equal(before)


def test_the_first_layers_have_no_adapter(reader: PromptReader) -> None:
    """From the given one on all have one, and their updates have the scale alpha / r."""
    for first in (0, 1):
        shape = shape_on(reader.model, first, rank=4, alpha=24)
        layers = range(first, reader.model.config.num_hidden_layers)
        assert {layer_of(name) for name in shape.modules} == set(layers)
    attach(reader.model, shape)
    assert shape.scale == 6 and shape_like(reader.model, state_of(reader.model), 6) == shape


def test_a_prompt_is_read_by_the_untouched_model_to_the_bit(reader: PromptReader) -> None:
    before = reader.read(asked(reader), depths=[0, 2])
    with_adapter(reader)
    after = PromptReader(reader.model, reader.form).read(asked(reader), depths=[0, 2])
    assert all(map(same, before, after))
    with adapted(reader.model):
        changed = PromptReader(reader.model, reader.form).read(asked(reader), depths=[0, 2])
    assert not any(map(same, before, changed))


def same(first: Reading, second: Reading) -> bool:
    assert first.states is not None and second.states is not None
    pairs = zip(first.layers, second.layers, strict=True)
    equal = (torch.equal(a, b) for layers in pairs for a, b in zip(*layers, strict=True))
    return all(equal) and torch.equal(first.states, second.states)


def generated(model: Any, before: list[int], limit: int) -> list[int]:
    """transformers' own greedy continuation, without its end."""
    ids = torch.tensor([before])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit, do_sample=False
    )
    tokens: list[int] = out[0, len(before) :].tolist()
    return tokens[: tokens.index(0)] if 0 in tokens else tokens


def test_a_sliding_window_sees_as_much_beside_a_longer_question() -> None:
    tokenizer = chat_tokenizer()
    sizes = SIZES | {"vocab_size": len(tokenizer), "initializer_range": 0.3}
    config = MistralConfig(**sizes, sliding_window=24)
    reader = PromptReader(drawn(MistralForCausalLM, config).eval(), chat_form(tokenizer))
    readings, right = reader.read(asked(reader)), answers(reader)
    together = reader.answer_logits(readings, right)
    alone = reader.answer_logits(readings[:1], right[:1])
    torch.testing.assert_close(together.logits[together.answer == 0], alone.logits)


@pytest.mark.parametrize("batch", [2, 32])
def test_decoding_is_greedy_generation(reader: PromptReader, batch: int) -> None:
    """Of questions of many lengths in one batch; some of the answers end, some are cut."""
    questions = [f"{question}{'!' * n}" for n in range(6) for question in QUESTIONS]
    with torch.no_grad():
        reader.model.get_output_embeddings().weight[0] *= 3  # random weights seldom end
    decoded = reader.decode(reader.read(asked(reader, questions), batch=batch), 12, batch=batch)
    expected = [generated(reader.model, whole(reader, question), 12) for question in questions]
    assert decoded == expected
    assert len({len(tokens) for tokens in decoded}) > 2 and max(map(len, decoded)) == 12


def test_what_chooses_a_token_is_given_logits_and_steps(reader: PromptReader) -> None:
    numbers = []

    def second(logits: torch.Tensor, step: int) -> torch.Tensor:
        numbers.append(step)
        return logits.topk(2).indices[:, 1]

    first, *_ = reader.steps(reader.read(asked(reader)), 4, second)
    assert numbers == [0, 1, 2, 3][: len(numbers)]
    for question, token in zip(QUESTIONS, first, strict=True):
        logits = plain_logits(reader.model, whole(reader, question), [0])[0]
        chosen = int(logits.topk(2).indices[1])
        assert token == (None if chosen in reader.form.stops else chosen)


@pytest.mark.parametrize("first", ["nothing", "read", "states"])
def test_states_are_those_of_a_full_pass(reader: PromptReader, first: str) -> None:
    """In whatever order they are asked for: transformers hooks a model's layers once."""
    deepest = reader.model.config.num_hidden_layers
    if first == "read":
        reader.read(asked(reader), depths=[1])
    if first == "states":
        reader.states(asked(reader), [1])
    for depths in ([1, 2], [0, deepest]):
        states = reader.states(asked(reader), depths)
        from_prompts = [reading.states for reading in reader.read(asked(reader), depths)]
        for row, question in enumerate(QUESTIONS):
            ids = torch.tensor([whole(reader, question)])
            with torch.no_grad():
                hidden = reader.model(ids, output_hidden_states=True).hidden_states
            begin = len(reader.form.prefix)
            text = slice(begin, begin + len(reader.form.spans(question)))
            expected = torch.stack([hidden[depth][0, text] for depth in depths])
            for ours in (states[row], from_prompts[row]):
                torch.testing.assert_close(ours, expected, rtol=0, atol=1e-11)


def test_margins_are_positive_where_greedy_decoding_gives_the_answer(reader: PromptReader) -> None:
    """The model's own answers, and the same with one token changed."""
    with torch.no_grad():
        reader.model.get_output_embeddings().weight[0] *= 3
    questions = [f"{question}{'!' * n}" for n in range(12) for question in QUESTIONS]
    readings = reader.read(asked(reader, questions))
    decoded = reader.decode(readings, 20)
    pairs = [(r, tokens) for r, tokens in zip(readings, decoded, strict=True) if len(tokens) < 20]
    assert len(pairs) > 3 and any(tokens for _, tokens in pairs)
    for change in (False, True):
        texts = [[*tokens, 0] for _, tokens in pairs]
        for tokens in texts if change else ():
            place = len(tokens) // 2
            tokens[place : place + 1] = [tokens[place] + 1] if len(tokens) > 1 else [5, 0]
        margins = reader.answer_logits([reading for reading, _ in pairs], texts).margins()
        assert ((margins < 0) if change else (margins > 0)).all()
    cut = [tokens[:-1] for _, tokens in pairs if len(tokens) > 1]
    long = [reading for reading, tokens in pairs if len(tokens) > 1]
    assert (reader.answer_logits(long, [[*t, 0] for t in cut]).margins() < 0).all()


def test_any_end_of_an_answer_ends_it(reader: PromptReader) -> None:
    """Where the model prefers another of the tokens at which decoding stops."""
    form = chat_form(chat_tokenizer())
    other = PromptReader(reader.model, type(form)(**{**vars(form), "stops": frozenset({0, 9})}))
    (reading,) = other.read(asked(other, QUESTIONS[:1]))
    with torch.no_grad():
        weights = reader.model.get_output_embeddings().weight
        weights[9], weights[0] = 9 * weights[7], 8 * weights[7]
    for (token,) in other.steps([reading], 20, lambda logits, _: logits[:, 9:].argmax(-1) + 9):
        assert token != 9
    alone = PromptReader(reader.model, form).answer_logits([reading], [[0]]).margins()
    both = other.answer_logits([reading], [[0]]).margins()
    ends = not other.decode([reading], 1)[0]
    assert (both > 0).item() is ends
    if ends:
        assert alone < 0 < both


def test_a_state_round_trips_and_a_missing_factor_is_a_key_error(reader: PromptReader) -> None:
    state = with_adapter(reader)
    reset(reader.model, torch.Generator().manual_seed(2))
    load_state(reader.model, state)
    back = state_of(reader.model, torch.float64)
    assert all(torch.equal(back[name], state[name]) for name in state)
    del state[next(iter(state))]
    with pytest.raises(KeyError):
        load_state(reader.model, state)


def test_answers_go_on_from_any_token_of_a_prompt(reader: PromptReader) -> None:
    """What was read of its beginning and the tokens behind that make plain passes over all."""
    readings, behind = [], []
    for cut, reading, question in zip(
        (2, 9, 0), reader.read(asked(reader)), QUESTIONS, strict=True
    ):
        layers = tuple((keys[:, :cut], values[:, :cut]) for keys, values in reading.layers)
        readings.append(Reading(reading.tokens[:cut], layers))
        behind.append([*reader.form.question(question)[cut:], *reader.form.invocation])
    logits = reader.answer_logits(readings, answers(reader), behind)
    begin = 0
    for question, answer in zip(QUESTIONS, answers(reader), strict=True):
        plain = plain_logits(reader.model, whole(reader, question), answer)
        rows = logits.logits[begin : begin + len(answer)]
        torch.testing.assert_close(rows, plain, rtol=0, atol=1e-12)
        begin += len(answer)
    assert begin == len(logits.logits)


SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
CONFIGS = {
    "plain": LlamaConfig(**SIZES),
    "scaled": GraniteConfig(**SIZES, logits_scaling=3.0),
    "capped": Gemma2Config(**SIZES, final_logit_softcapping=0.1),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_at_places(kind: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind]).double().eval()
    ids = torch.randint(0, 50, (3, 7))
    rows, columns = [0, 0, 2], [1, 6, 0]
    expected = model(ids).logits
    with logits_at(model, rows, columns):
        logits = model(ids).logits
    assert logits.shape == (1, 3, 50)
    torch.testing.assert_close(logits[0], expected[rows, columns])
    torch.testing.assert_close(model(ids).logits, expected)  # the block is over


def test_a_pass_that_fails_leaves_the_head_alone() -> None:
    model = AutoModelForCausalLM.from_config(CONFIGS["plain"]).eval()
    with pytest.raises(IndexError), logits_at(model, [5], [0]):
        model(torch.tensor([[1, 2]]))
    assert model(torch.tensor([[1, 2]])).logits.shape == (1, 2, 50)
