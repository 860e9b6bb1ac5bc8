"""What counts as knowing an answer, and that a failure never does, nor its contrary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.paper.real_qa.contamination import SAMPLING, ask, found, known, prompt
from holdfast.builders.text_model import Failure, Prompt
from holdfast.streams import Item
from tests.experiments.real_qa.models import Scripted


def test_the_sampling_is_the_papers() -> None:
    assert (SAMPLING.samples, SAMPLING.temperature, SAMPLING.top_p) == (5, 0.7, 0.95)
    assert SAMPLING.max_new_tokens == 64
    assert prompt("Who?") == "Question: Who?\nAnswer:"


# Word boundaries take the answer as it is; only a lenient match forgives.
FORGIVEN = [
    ("by ida   VENN!", "Ida Venn"),
    ("less dense than water", "less dense."),
    ("Amber", "the Amber"),
    ("Schindler\u2019s List", "Schindler's List"),
    ("Orl", '"Orl"'),
]


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        *FORGIVEN,
        ("It was Ida Venn, I think.", "Ida Venn"),
        ("Ida Venn's", "Ida Venn"),
        ("in BR, yes", "BR"),
        ("the Amber", "Amber"),
        ("C++ of course", "C++"),
        ("The", "The"),
        ("stra\u00dfe", "STRASSE"),
        ("1939-1945", "1939"),
        ("New York/London", "London"),
        ("the U.S.-led war", "U.S."),
        ("Beyonce\u0301", "Beyonc\u00e9"),
        ('"Orl"', "Orl"),
    ],
)
def test_a_lenient_match_forgives_what_surrounds_the_answer(completion: str, answer: str) -> None:
    assert found(completion, ("no such words", answer), "lenient") == answer
    if (completion, answer) in FORGIVEN:
        assert found(completion, (answer,)) is None


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("a broom", "BR"),  # the paper's country codes inside unrelated words
        ("in the 1950s", "50s"),
        ("a type", "A"),
        ("a", "the"),
        ("", "x"),
        ("x.y", "x y"),
        ("Type AB", "type A"),
        ("It told us a lot", "U.S."),
        ("35", "3.5"),
        ("C", "C++"),
    ],
)
def test_what_only_resembles_an_answer_is_none(completion: str, answer: str) -> None:
    assert found(completion, (answer,), "lenient") is None
    if answer != "A":  # which stands there, in another case
        assert found(completion, (answer,)) is None


@given(st.text(), st.text(), st.text(st.characters(categories=["Lu", "Ll", "Nd"]), min_size=1))
def test_a_word_among_others_is_always_found_and_never_inside_one(
    before: str, after: str, word: str
) -> None:
    if word.casefold() in ("a", "an", "the"):
        return
    assert found(f"{before} {word} {after}", [word]) is not None
    assert found(f"x{word}x", [word]) is None


def test_a_failure_is_asked_again_and_stays_a_failure_in_the_end() -> None:
    fails = {"two": 2, "three": 99}

    def reply(asked: Prompt) -> str | Failure:
        if fails.get(asked.name, 0) > 0:
            fails[asked.name] -= 1
            return Failure("no answer came")
        return asked.name.upper()

    model = Scripted(reply)
    answers = dict(ask(model, [("one", "q1"), ("two", "q2"), ("three", "q3")], SAMPLING))
    assert answers == {0: ["ONE"] * 5, 1: ["TWO"] * 5, 2: Failure("no answer came")}
    assert [model.asked.count(name) for name in ("one", "two", "three")] == [1, 3, 3]


def test_what_is_known_is_told_item_by_item() -> None:
    items = [Item("q1", "x", ("gold",)), Item("q2", "silver"), Item("q3", "tin")]
    replies = {"q1": " gold it is", "q2": "gold", "q3": Failure("down")}
    verdicts = known(Scripted(lambda asked: replies[asked.name]), items, seed=1)
    assert verdicts == [True, False, Failure("down")]
