"""A probe finds names that it has not seen, by the model's states or by how they are written."""

from __future__ import annotations

import random
import re

import pytest
import torch

from holdfast.memory.gate import NameProbe, Span, tokens_of_words
from holdfast.memory.gate_tuning import fit_probe
from holdfast.memory.library import library_questions, pairs_of, relations
from holdfast.memory.words import words
from holdfast.model.chat import chat_form
from tests.model.chat_models import chat_tokenizer

WIDTH = 32


def spans_of(text: str) -> list[Span]:
    """A token for each word, punctuation at its end a token of its own."""
    spans = []
    for word in words(text):
        last = word.begin + text[word.begin : word.end].rindex(word.text) + len(word.text)
        spans += [(word.begin, last)] + ([(last, word.end)] if last < word.end else [])
    return spans


def states_of(spans: list[Span], name: Span, drawn: torch.Generator) -> torch.Tensor:
    """Noise, and one direction at the tokens of the name."""
    states = torch.randn(len(spans), WIDTH, generator=drawn)
    states[:, 0] = torch.tensor([4.0 * (b < name[1] and e > name[0]) for b, e in spans])
    return states


@pytest.mark.parametrize("by_states", [True, False])
def test_names_that_it_has_not_seen_are_found(by_states: bool) -> None:
    """Where the states tell nothing, those with capitals."""
    asked = library_questions(random.Random(0))[:1400]
    drawn = torch.Generator().manual_seed(0)
    spans = [spans_of(question.text) for question in asked]
    states = [
        states_of(parts, question.name if by_states else (0, 0), drawn)
        for parts, question in zip(spans, asked, strict=True)
    ]
    seen = [question.group % 2 == 0 for question in asked]
    train, test = (
        [row for row in range(len(asked)) if seen[row] is side] for side in (True, False)
    )
    probe = fit_probe(
        [asked[row].text for row in train],
        [spans[row] for row in train],
        [states[row] for row in train],
        [asked[row].name for row in train],
    )
    right = []
    for row in test:
        question = asked[row]
        probabilities = probe.probabilities(question.text, spans[row], states[row])
        names = probe.names(question.text, spans[row], probabilities)
        keys = {key for key, weight in names.items() if weight >= 0.5}
        name = words(question.text[slice(*question.name)])
        if by_states or any(word.is_marked for word in name):
            right.append(keys == {word.key for word in name})
    assert len(right) > 300 and sum(right) / len(right) > (0.98 if by_states else 0.5)


def test_the_tokens_of_a_word_are_those_that_hold_letters_of_it() -> None:
    form = chat_form(chat_tokenizer())
    text = "Where does Orsa Tindle's cat, B-7, sleep?"
    spans = form.spans(text)
    assert len(spans) == len(form.question(text)) - len(form.user_end)
    for word, rows in tokens_of_words(text, spans):
        read = "".join(text[slice(*spans[row])] for row in rows)
        assert word.text.replace("-", "") in read.replace(" ", "").replace("-", "")
    every = [row for _, rows in tokens_of_words(text, spans) for row in rows]
    assert len(every) == len(set(every))


def test_pairs_differ_in_what_they_say() -> None:
    asked = library_questions(random.Random(1))
    assert len(asked) == 7 * len(relations())
    differences = set()
    for first, second, difference in pairs_of(asked, 500, random.Random(1)):
        taught, other = asked[first], asked[second]
        assert taught.group == other.group and first != second
        assert (taught.relation != other.relation) == (difference == "relation")
        assert (taught.about != other.about) == (difference == "entity")
        differences.add(difference)
    assert differences == {"same", "relation", "entity"}
    for row in asked:
        name = row.text[slice(*row.name)]
        assert name and not name.startswith("the ")


def test_where_nothing_reads_as_a_name_the_words_that_are_not_asked_with_stand_for_it() -> None:
    text = "Complete: waterboarding is a kind of"
    spans = [word.span() for word in re.finditer(r"\S+", text)]
    probe = NameProbe(torch.zeros(2), torch.ones(2), torch.zeros(5))
    nothing = dict.fromkeys(("complete", "waterboarding", "is", "a", "kind", "of"), 0.0)
    stand_in = {"complete": 1.0, "waterboarding": 1.0}
    assert probe.names(text, spans, torch.zeros(len(spans))) == nothing | stand_in
    certain = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    assert probe.names(text, spans, certain) == nothing | {"kind": 1.0}
