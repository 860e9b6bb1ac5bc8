"""Letter likelihoods are those of the plain forward, and the likeliest letter is the answer."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from holdfast.backbone.generation.decoding import can_cache
from holdfast.capability.letters import (
    EXAMPLES,
    LetterChoice,
    letter_tokens,
    next_token_log_probabilities,
    question,
)
from holdfast.capability.problems import Problem
from holdfast.core.errors import HoldfastError
from tests.refused import line_of
from tests.tiny import exact_backbone, exact_gpt2

SOUP = ["hot", "cold", "None", "a 'mild', one"]


def test_the_prompt_is_two_examples_and_the_question():
    item = Problem("1", "", "How is soup?", "C", {"choices": SOUP})
    assert question(item) == (
        "Question: How is soup?\nA. hot\nB. cold\nC. None\nD. a 'mild', one\nAnswer:"
    )
    assert len(EXAMPLES) == 2
    assert all(example.startswith("Question: ") and "\nAnswer: " in example for example in EXAMPLES)


PROMPTS = [[5, 6, 7, 8, 9], [5, 6, 7, 1], [5, 6, 7, 1, 2, 3, 4, 30], [5, 6, 7], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize("backbone", [exact_backbone(), exact_gpt2()], ids=["llama", "gpt2"])
@pytest.mark.parametrize("tokens_per_batch", [1, 12, 8192])
def test_the_shared_beginning_computed_once_gives_the_plain_forward(backbone, tokens_per_batch):
    candidates = [3, 40, 11]
    by_place = dict(next_token_log_probabilities(backbone, PROMPTS, candidates, tokens_per_batch))
    assert sorted(by_place) == list(range(len(PROMPTS)))
    for place, prompt in enumerate(PROMPTS):
        with torch.no_grad():
            logits = backbone.model(torch.tensor([prompt])).logits[0, -1]
        plain = (logits - logits.exp().sum().log())[candidates]
        torch.testing.assert_close(
            torch.tensor(by_place[place], dtype=torch.float64), plain, rtol=1e-12, atol=1e-12
        )


def test_the_shared_beginning_is_computed_once(monkeypatch):
    backbone = exact_backbone()
    assert can_cache(backbone)  # tries it, once
    widths = []
    forward = backbone.model.base_model.forward

    def counting(*args, **kwargs):
        widths.append(tuple(kwargs["input_ids"].shape))
        return forward(*args, **kwargs)

    monkeypatch.setattr(backbone.model.base_model, "forward", counting)
    list(next_token_log_probabilities(backbone, [PROMPTS[0], PROMPTS[1]], [3], 8192))
    assert widths == [(1, 3), (2, 2)]


def test_letters_that_begin_alike_are_refused():
    backbone = exact_backbone()  # a token a byte: all four begin with the space
    assert "does not tell" in line_of(LetterChoice().check, backbone)
    backbone.tokenizer.add_tokens([" A", " B", " C", " D"])
    first = len(backbone.tokenizer) - 4
    assert letter_tokens(backbone) == list(range(first, first + 4))


def test_a_model_without_numbers_is_refused():
    backbone = exact_backbone()
    backbone.head.weight.data.fill_(math.nan)
    with pytest.raises(HoldfastError, match="not numbers"):
        list(next_token_log_probabilities(backbone, PROMPTS, [3, 40]))


@pytest.mark.parametrize("kind", ["space before a word", "space before any text", "bytes"])
def test_the_letters_token_is_the_one_that_follows_the_prompt(kind):
    """The first two as SentencePiece has them, of newer and of older models."""
    words = ["▁", ":", *"ABCD", "▁A", "▁B", "▁C", "▁D", "▁Answer"]
    tokenizer = Tokenizer(models.Unigram([(word, -len(word) / 9) for word in ["?", *words]], 0))
    if kind == "space before a word":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    elif kind == "space before any text":
        marks = normalizers.Replace(" ", "▁")
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), marks])
    else:
        ordered = {"Answer:": 0} | {f"Ġ{letter}": n for n, letter in enumerate("ABCD", 1)}
        tokenizer = Tokenizer(models.WordLevel(ordered, "Answer:"))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def tokenize(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    tokens = letter_tokens(SimpleNamespace(tokenize=tokenize))
    mark = "Ġ" if kind == "bytes" else "▁"
    assert list(map(tokenizer.id_to_token, tokens)) == [f"{mark}{letter}" for letter in "ABCD"]


@pytest.mark.parametrize("opened", [False, True], ids=["", "with the replay token"])
def test_every_item_gets_the_likeliest_letter(monkeypatch, opened):
    backbone = exact_backbone()
    if opened:
        backbone.add_replay_token()
    opening = [len(backbone.tokenizer) - 1] if opened else []
    room = 180 - len(opening)
    letters = dict(zip("ABCD", (70, 80, 90, 100), strict=True))
    tokenize = backbone.tokenize
    monkeypatch.setattr(
        backbone, "tokenize", lambda text: [letters[text[1]]] if len(text) == 2 else tokenize(text)
    )
    backbone.model.config.max_position_embeddings = 180
    short = Problem("short", "g", "Soup?", "C", {"choices": ["a", "b", "c", "d"]})
    long = Problem("long", "g", "Soup? " * 40, "C", {"choices": ["a", "b", "c", "d"]})
    samples = {sample.id: sample for sample in LetterChoice().answer(backbone, [short, long])}
    # Both examples are 200 bytes: one is left out for the short question, both for the long one,
    # which is too long even so.
    lost = {name: sample.details["lost_tokens"] for name, sample in samples.items()}
    assert lost == {"short": 0, "long": len(question(long)) - room}
    assert samples["short"].prompt == EXAMPLES[1] + question(short)
    assert [samples[name].details["examples"] for name in lost] == [1, 0]
    for item in (short, long):
        sample = samples[item.id]
        ids = opening + tokenize(sample.prompt)[-room:]
        with torch.no_grad():
            plain = backbone.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        expected = {letter: float(plain[token]) for letter, token in letters.items()}
        assert sample.details["log_probabilities"] == pytest.approx(expected, abs=1e-12)
        assert sample.extracted == max(expected, key=expected.__getitem__)
        assert sample.correct == (sample.extracted == "C") and sample.output == ""
