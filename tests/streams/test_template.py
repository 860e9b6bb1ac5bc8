"""Items as tokens, with a tokenizer of one token a symbol, and with one that merges."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream, Task, Template
from holdfast.streams.template import PAPER
from tests.refused import line_of

SEED, EOS = 900_001, 900_002
PARIS = Item("capital?", "Paris {FR}", ("paris",))
TEXT = "Question: capital?\nAnswer: \\boxed{Paris {FR}}"


class Characters:
    """One token a symbol, its code point."""

    def __call__(self, text: str, /, *, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [ord(symbol) for symbol in text]}


class Words:
    """One token a word with the whitespace before it, as byte-level tokenizers cut."""

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}

    def __call__(self, text: str, /, *, add_special_tokens: bool) -> dict[str, list[int]]:
        words = re.findall(r"\s*\S+|\s+", text)
        number = self.vocabulary.setdefault
        return {"input_ids": [number(word, len(self.vocabulary)) for word in words]}


def codes(text: str) -> list[int]:
    return [ord(symbol) for symbol in text]


@pytest.mark.parametrize("seed_token", [None, SEED, 0])
@pytest.mark.parametrize("append_eos", [False, True])
def test_a_sequence_is_seed_text_and_end(seed_token: int | None, append_eos: bool) -> None:
    template = Template(Template.Config(append_eos=append_eos))
    seed = [] if seed_token is None else [seed_token]
    end = [EOS] if append_eos else []
    assert template.encode(PARIS, Characters(), seed_token, EOS) == seed + codes(TEXT) + end
    assert template.encode_prompt(PARIS, Characters(), seed_token) == seed + codes(
        "Question: capital?\nAnswer:"
    )


def test_what_the_tokenizer_lacks_or_the_text_holds_is_refused() -> None:
    item = Item(f"what is {chr(SEED)}?", "1")
    template = Template(Template.Config(append_eos=True))
    with pytest.raises(HoldfastError, match="the tokenizer has no end-of-sequence token; set"):
        template.encode(PARIS, Characters(), None, None)
    for encode in (partial(Template().encode, eos=None), Template().encode_prompt):
        with pytest.raises(HoldfastError, match="holds the text of the replay token"):
            encode(item, Characters(), seed_token=SEED)


def test_every_token_counts_towards_the_limit() -> None:
    length = len(TEXT) + 2
    fits = Template(Template.Config(append_eos=True, max_length=length))
    assert len(fits.encode(PARIS, Characters(), SEED, EOS)) == length
    tight = Template(Template.Config(append_eos=True, max_length=length - 1))
    assert line_of(tight.encode, PARIS, Characters(), SEED, EOS) == (
        f'question "capital?" needs {length} tokens, so its answer would be cut at '
        f"template.max_length = {length - 1}; shorten it, raise the limit, or see template.overlong"
    )


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            Item("word\n" * 100, "a}b"),
            'the answer "a}b" of question "' + "word " * 11 + 'wo..." has unbalanced braces, so it '
            "cannot be read back from \\boxed{...}; balance or remove them",
        ),
        (
            Item("q", "a", ("{x",)),
            'the alias "{x" of question "q" has unbalanced braces, so it cannot be read back '
            "from \\boxed{...}; balance or remove them",
        ),
    ],
)
def test_what_no_box_could_give_back_is_refused_where_answers_are_boxed(item, message) -> None:
    stream = Stream((Task("x", (Item("b", "{1}"), item)),), "s")
    line = line_of(Template().check_stream, stream, Characters(), None, None)
    assert line == f'task "x" item 2: {message}'
    plain = Template(Template.Config(max_length=1000), replace(PAPER, boxed=False))
    assert plain.check_stream(stream, Characters(), None, None) == 0


def test_a_stream_with_cut_answers_names_the_first_and_counts_them() -> None:
    long = (Item("b", "2" * 380), Item("c", "3" * 900))
    stream = Stream((Task("x", (Item("a", "1"), long[0])), Task("y", long[1:])), "s")
    around = len("Question: b\nAnswer: \\boxed{}")
    assert line_of(Template().check_stream, stream, Characters(), None, None) == (
        f'task "x" item 2: question "b" needs {380 + around} tokens, so its answer would be cut '
        "at template.max_length = 384; shorten it, raise the limit, or see template.overlong (2 of "
        f"the stream's items are too long, the longest needs {900 + around})"
    )
    cutting = Template(Template.Config(overlong="truncate"))
    assert cutting.check_stream(stream, Characters(), SEED, None) == 2
    whole = Template(Template.Config(max_length=1000)).encode(long[0], Characters(), SEED, None)
    assert cutting.encode(long[0], Characters(), SEED, None) == whole[:384]
    dropping = Template(Template.Config(overlong="drop"))
    with pytest.raises(HoldfastError, match='task "y": every item needs more'):
        dropping.fitting(stream, Characters(), SEED, None)
    with_more = Stream((stream.tasks[0], Task("y", (*long[1:], Item("d", "4")))), "s")
    fitting_stream = dropping.fitting(with_more, Characters(), SEED, None)
    assert [[item.question for item in task.items] for task in fitting_stream.tasks] == [
        ["a"],
        ["d"],
    ]
    assert fitting_stream.fingerprint != with_more.fingerprint and fitting_stream.name == "s"
    assert dropping.fitting(fitting_stream, Characters(), SEED, None) is fitting_stream


def test_a_truncated_item_keeps_some_of_its_answer() -> None:
    item = Item("q" * 400, "a")
    cutting = Template(Template.Config(overlong="truncate", max_length=100))
    stream = Stream((Task("x", (item,)),), "s")
    with pytest.raises(HoldfastError, match="leaves no token of its answer within"):
        cutting.check_stream(stream, Characters(), SEED, None)
    prompt = len(cutting.encode_prompt(item, Characters(), SEED))
    for limit, fits in ((prompt + 1, True), (prompt, False)):
        tight = Template(Template.Config(overlong="truncate", max_length=limit))
        with nullcontext() if fits else pytest.raises(HoldfastError, match="no token"):
            assert len(tight.encode(item, Characters(), SEED, None)) == limit


def test_an_answer_that_could_never_be_recalled_is_refused_with_both_numbers() -> None:
    around = len(" \\boxed{}")
    answer = "2" * 300
    stream = Stream((Task("x", (Item("a", "1"),)), Task("y", (Item("b", answer),))), "s")
    check = partial(Template().check_stream, stream, Characters(), SEED, None)
    assert check() == 0  # it fits template.max_length
    assert line_of(check, longest_answer=256) == (
        f'task "y" item 1: the answer to "b" needs {300 + around} tokens, so it would never be '
        "recalled with evaluation.max_new_tokens = 256; shorten it or raise the limit"
    )
    assert check(longest_answer=300 + around) == 0
    assert check(longest_answer=256, learned=2) == 0
    # What is truncated is known not to be learned whole.
    cutting = Template(Template.Config(overlong="truncate", max_length=100))
    assert cutting.check_stream(stream, Characters(), SEED, None, longest_answer=256) == 1


def test_the_answer_is_what_follows_the_prompt() -> None:
    for tokenizer in (Characters(), Words()):
        prompt = Template().encode_prompt(PARIS, tokenizer, None)
        answer = Template().encode_answer(PARIS, tokenizer)
        assert prompt + answer == Template().encode(PARIS, tokenizer, None, None)
        assert tokenizer.__class__ is Characters or len(answer) == 2
