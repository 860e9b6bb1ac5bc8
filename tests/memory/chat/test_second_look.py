"""The second look is the pointwise mutual information of two questions, by whole plain passes."""

from __future__ import annotations

import pytest
import torch

from holdfast.memory.chat.second_look import (
    BY_INFORMATION,
    CONSTANT,
    Pair,
    mutual_information,
    second_scores,
)
from holdfast.model.chat import chat_form
from holdfast.model.reading import PromptReader
from tests.model.chat_models import chat_llama, chat_tokenizer, exact

PAIRS = [
    Pair(
        "Where was Orsa Tindle born?",
        "In which town did orsa tindle come into the world?",
        {"orsa": 2.0, "tindle": 2.0, "born": 0.2},
    ),
    Pair("Who keeps Bramble?", "How old is Bramble?", {"bramble": 2.0}),
    Pair("Who keeps it?", "How old is it?", {}),
]


@pytest.fixture
def reader() -> PromptReader:
    return PromptReader(exact(chat_llama()), chat_form(chat_tokenizer()))


def log_likelihood(reader: PromptReader, request: str, target: str) -> float:
    """One plain pass over the whole chat, without kept keys and values."""
    form = reader.form
    head = [*form.prefix, *form.question(request), *form.invocation]
    tail = form.answer(target)[:-1]
    with torch.no_grad():
        logits = reader.model(torch.tensor([[*head, *tail]])).logits[0]
    rows = logits[len(head) - 1 : -1].log_softmax(1)
    return float(rows.gather(1, torch.tensor(tail)[:, None]).sum())


def test_it_is_the_information_both_ways(reader: PromptReader) -> None:
    subjects = ["Orsa Tindle", "Bramble", "it"]
    expected = []
    for pair, subject in zip(PAIRS, subjects, strict=True):
        assert pair.subject == subject
        total = 0.0
        for one, other in ((pair.taught, pair.asked), (pair.asked, pair.taught)):
            total += log_likelihood(reader, f"Ask this question in other words: {one}", other)
            total -= log_likelihood(reader, f"Tell me something about {subject}.", other)
        expected.append(total)
    assert mutual_information(reader, PAIRS) == pytest.approx(expected, abs=1e-4)
    assert abs(expected[0] - expected[1]) > 0.1  # two pairs, two values


def test_it_moves_the_first_score(reader: PromptReader) -> None:
    information = mutual_information(reader, PAIRS[:2])
    scores = second_scores(reader, PAIRS[:2], [0.5, -1.0])
    expected = [
        0.5 + BY_INFORMATION * information[0] + CONSTANT,
        -1.0 + BY_INFORMATION * information[1] + CONSTANT,
    ]
    assert scores == pytest.approx(expected)
    assert second_scores(reader, [], []) == []
