"""Other wordings of questions, by rules and by a language model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.builders.paraphrases import ModelParaphraser, Rules, reworded
from holdfast.builders.text_model import Failure
from holdfast.core.errors import HoldfastError
from holdfast.memory.words import loose_key


@pytest.mark.parametrize(
    ("question", "wording"),
    [
        ("Where is the tea tin of the ferry?", "Where can one find the ferry's tea tin?"),
        ("Where are the oars?", "Tell me where the oars are."),
        ("Who mends the nets of Ostra?", "Which person mends the nets of Ostra?"),
        ("Who was the first mayor?", "Do you know who the first mayor was?"),
        ("What is the ferry called?", "By what name is the ferry known?"),
        ("What is the bell made of?", "Tell me what the bell is made of."),
        ("How many boats may moor here?", "What number of boats may moor here?"),
        ("When does the lamp go out?", "At what time does the lamp go out?"),
        ("Which bus goes there?", "Tell me which bus goes there."),
        ("Does it rain?", "Please answer: does it rain?"),
    ],
)
def test_common_forms(question, wording):
    assert wording in reworded(question)


def test_a_verb_before_its_subject_stays_there():
    # "tell me who does it belong to" would be wrong.
    assert all(": who does" in text for text in reworded("Who does it belong to?"))


@given(st.text(max_size=40))
def test_wordings_differ_from_the_question_and_from_each_other(question):
    wordings = reworded(question)
    assert wordings == reworded(question)
    assert len(set(wordings)) == len(wordings)
    assert question not in wordings


def test_rules_give_at_most_what_is_wanted():
    reports = []
    results = Rules().write(["Where is it?", "Why?"], 2, lambda *seen: reports.append(seen))
    assert [len(wordings) for wordings in results] == [2, 2]
    assert reports == [(2, 2, "other wordings")]


class Model:
    """Writes the same lines to every prompt, the last prompt first."""

    name, batch = "stand-in", 4

    def __init__(self, answer):
        self.answers, self.prompts = answer, []

    def answer(self, prompts, sampling):
        self.prompts += prompts
        for place in reversed(range(len(prompts))):
            yield place, self.answers


def test_a_model_writes_one_a_line():
    lines = (
        "1. Which Ann is it?\n\n- Who might Ann be?\n* Who is Ann?\nWho might Ann be?\n\u2022 Ann?"
    )
    model = Model([lines])
    results = ModelParaphraser(model, seed=5).write(["Who is Ann?", "Why?"], 2, lambda *_: None)
    assert results == [["Which Ann is it?", "Who might Ann be?"]] * 2
    assert "Write 2 other ways" in model.prompts[0].text
    assert model.prompts[0].text.endswith("Who is Ann?")
    assert loose_key(model.prompts[1].name) == "why"


def test_a_model_that_fails_is_named():
    with pytest.raises(HoldfastError, match=r"stand-in: no other wordings of 'Why\?' \(no room\)"):
        ModelParaphraser(Model(Failure("no room"))).write(["Why?"], 2, lambda *_: None)
