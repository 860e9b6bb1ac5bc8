"""What a model was taught is told from what it was not, without a list of facts."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Memory, RunConfig
from holdfast.backbone.likelihood import token_log_likelihoods
from holdfast.backbone.load import load_backbone
from holdfast.memory.knowledge import (
    KNOWLEDGE_FILE,
    Knowledge,
    read_knowledge,
    threshold,
    until_box,
)
from tests.memory.memories import MONDAY, TUESDAY, config, rehearsing_memory, values
from tests.trajectory.outcome import contents_of

UNTAUGHT = ["Who wrote Hamlet?", "What is the capital of France?", "How tall is the hill?"]


@given(st.lists(st.floats(-30, -0.1), min_size=1, max_size=40), st.floats(1, 1e6))
def test_what_lies_above_the_threshold_is_within_the_count(drawn, count):
    found = threshold(drawn, 40, count)
    assert min(drawn) <= found <= max(drawn)
    above = sum(math.exp(-density) / 40 for density in drawn if density > found)
    assert above <= count * (1 + 1e-9)
    below = [density for density in drawn if density < found]
    if below:
        further = [density for density in drawn if max(below) <= density <= found]
        assert above + sum(math.exp(-density) / 40 for density in further) > count * (1 - 1e-9)
    assert threshold(drawn, 40, 2 * count) <= found


def test_draws_in_proportion_to_their_density_count_sequences():
    density = [0.3, 0.3, 0.2, 0.1, 0.05, 0.05]
    drawn = [math.log(p) for p in density for _ in range(round(100 * p))]
    for count in range(1, 7):
        found = threshold(drawn, 100, count + 0.01)
        above = sum(math.log(p) > found - 1e-12 for p in density)
        # Equally probable sequences are on the same side.
        assert above == {1: 2, 2: 2, 3: 3, 4: 4, 5: 6, 6: 6}[count]
    assert threshold([], 100, 3) == 0
    # 0.1 and the next, far away: the threshold is halfway, in nats.
    assert threshold([math.log(0.1)] * 10 + [-20.0], 100, 1.5) == (math.log(0.1) - 20) / 2


def test_token_log_likelihoods_are_those_of_one_sequence_at_a_time(backbone_directory):
    tiny_backbone = load_backbone(RunConfig.of(values(backbone_directory)).backbone)
    sequences = [[5, 6, 7], [8, 9], [3, 1, 4, 1, 5, 9, 2, 6]]
    found = token_log_likelihoods(tiny_backbone, sequences)
    for tokens, likelihoods in zip(sequences, found, strict=True):
        with torch.no_grad(), tiny_backbone.answering():
            ids = torch.tensor([tokens])
            logits = tiny_backbone.logits(tiny_backbone.hidden(ids, torch.ones_like(ids)))[0]
        expected = torch.log_softmax(logits[:-1].double(), -1)[range(len(tokens) - 1), tokens[1:]]
        assert likelihoods.dtype == torch.float64
        torch.testing.assert_close(likelihoods, expected, atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def rehearsing(tmp_path_factory):
    """A memory on the embedded model that knows its facts and rehearses."""
    return rehearsing_memory(tmp_path_factory.mktemp("rehearsing") / "m")


def test_taught_is_told_from_untaught(rehearsing):
    memory = Memory(rehearsing)
    before = contents_of(rehearsing)
    for question, answer in [*MONDAY, *TUESDAY]:
        reply = memory.reply(question)
        assert reply.taught and reply.answer == answer and reply.question == question
        assert 0.2 < reply.probability <= 1
        assert memory.ask(question) == answer
    for question in UNTAUGHT:
        reply = memory.reply(question)
        assert reply.taught is False
        assert memory.ask(question) is None
    assert contents_of(rehearsing) == before


def test_the_density_is_that_of_question_and_answer(rehearsing):
    memory = Memory(rehearsing)
    learner = memory.load()
    backbone = learner.backbone
    question, answer = MONDAY[0]
    reply = memory.reply(question)
    text = f"Question: {question}\nAnswer: \\boxed{{{answer}}}"
    whole = [backbone.seed_token, *backbone.tokenize(text)]
    (likelihoods,) = token_log_likelihoods(backbone, [whole])
    assert reply.log_density == pytest.approx(float(likelihoods.sum()), abs=1e-4)
    answered = len(whole) - 1 - len(backbone.tokenize(f"Question: {question}\nAnswer:"))
    expected = float(likelihoods[-answered:].sum().exp())
    assert reply.probability == pytest.approx(expected, rel=1e-3)


def test_spelling_does_not_matter(rehearsing):
    memory = Memory(rehearsing)
    question, answer = MONDAY[0]
    for asked in (question.lower(), question.upper(), question.rstrip("?"), f" {question}  ",
                  question.replace(" ", "  "), question.lower().rstrip("?") + " ?"):  # fmt: skip
        assert memory.ask(asked) == answer, asked


def test_the_model_finds_the_spelling_where_no_list_of_facts_is_asked(rehearsing, monkeypatch):
    monkeypatch.setattr(Memory, "_spellings", lambda self: {})
    memory = Memory(rehearsing)
    for question, answer in MONDAY:
        for asked in (question.lower().rstrip("?"), question.upper(), f"  {question} "):
            reply = memory.reply(asked)
            assert (reply.question, reply.answer) == (question, answer), asked


def test_the_file_is_bound_to_the_commit(rehearsing):
    there, found = read_knowledge(rehearsing)
    assert there and found == Memory(rehearsing).knowledge()
    assert found.facts == len(MONDAY) + len(TUESDAY)
    file = rehearsing / KNOWLEDGE_FILE
    content = file.read_bytes()
    try:
        for damaged in (b"", content[:-9], content.replace(b"threshold", b"thresholds"), b"[]",
                        content.replace(b'"samples": 512', b'"samples": 513')):  # fmt: skip
            file.write_bytes(damaged)
            assert read_knowledge(rehearsing) == (False, None)
            assert Memory(rehearsing).knowledge() == found  # measured anew, to the same number
        file.unlink()
        Memory(rehearsing).learn(MONDAY)  # nothing new, but what is missing is written
        assert file.read_bytes() == content
    finally:
        file.write_bytes(content)


def test_a_method_that_does_not_rehearse_cannot_tell(backbone_directory, tmp_path):
    memory = Memory(tmp_path / "m", config(backbone_directory))
    memory.learn(MONDAY)
    assert memory.knowledge() is None
    assert read_knowledge(tmp_path / "m") == (True, None)
    reply = memory.reply(MONDAY[0][0])
    assert (reply.taught, reply.log_density) == (None, None)


def test_a_new_batch_is_measured_again(backbone_directory, tmp_path):
    memory = Memory(tmp_path / "m", config(backbone_directory, "replay_merge"))
    memory.learn(MONDAY)
    first = memory.knowledge()
    memory.learn(TUESDAY)
    second = memory.knowledge()
    assert isinstance(first, Knowledge) and isinstance(second, Knowledge)
    assert (first.facts, second.facts) == (3, 5)
    assert read_knowledge(tmp_path / "m") == (True, second)


def test_tokens_up_to_the_box():
    class Spoken:
        def decode(self, tokens):
            return "".join(chr(token) for token in tokens)

    def of(text):
        return [ord(letter) for letter in text]

    assert until_box(Spoken(), of(r"a \boxed{b{c}} and")) == of(r"a \boxed{b{c}}")
    assert until_box(Spoken(), of(r"\boxed{}")) == of(r"\boxed{}")
    assert until_box(Spoken(), of(r"a \boxed{b")) == []
    assert until_box(Spoken(), []) == []
