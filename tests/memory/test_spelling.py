"""How a question may be spelled, and which taught questions are like it."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.plan import plan
from holdfast.memory.spelling import loose_key, nearest, taught_spellings
from holdfast.streams import Item, Stream, Task

TAUGHT = ["Who rings the bell of Ostra?", "Who mends the bell of Ostra?", "Where is the key?"]


def test_case_punctuation_and_spacing_do_not_count():
    for asked in ("who rings the bell of ostra", " WHO RINGS  the bell of Ostra ?!"):
        assert taught_spellings(TAUGHT)[loose_key(asked)] == TAUGHT[0]
    # Two questions that are one in small letters are asked as they are written.
    assert taught_spellings(["Is it Polish?", "Is it polish?"]) == {}
    assert taught_spellings(["?!"]) == {}


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        ("who rings the bell in ostra", TAUGHT[:2]),
        ("where's the key", [TAUGHT[2]]),
        ("What is the capital of France?", []),
        ("", []),
    ],
)
def test_the_nearest_taught_questions(asked, offered):
    assert nearest(asked, TAUGHT) == offered
    assert nearest(asked, TAUGHT, most=1) == offered[:1]


WORDS = st.lists(
    st.sampled_from(["who", "rings", "the", "bell", "of", "a"]), min_size=1, max_size=6
)


@given(WORDS, st.lists(WORDS, max_size=6))
def test_the_nearest_are_those_of_the_highest_ratio(asked, taught):
    """None is left out by the bound that saves the comparison of most."""
    ratios = [
        difflib.SequenceMatcher(None, asked, question, autojunk=False).ratio()
        for question in taught
    ]
    order = sorted(range(len(taught)), key=lambda place: -ratios[place])
    expected = [" ".join(taught[place]) for place in order if ratios[place] >= 0.5][:3]
    assert nearest(" ".join(asked), [" ".join(question) for question in taught]) == expected


@pytest.mark.parametrize(
    ("taught", "other"),
    [
        ("What is C#?", "What is C++?"),
        ("What is -5?", "What is 5?"),
        ("What is 5%?", "What is 5?"),
        ("Is it > 5?", "Is it < 5?"),
        ("What is A+B?", "What is A-B?"),
        ("What is 1.5?", "What is 1 5?"),
        ("What is .5?", "What is 5?"),
        ("What is at 10:30?", "What is at 10.30?"),
        ("Who is @ada?", "Who is ada?"),
        ("What is $5?", "What is €5?"),
        ("What is in /etc?", "What is in etc?"),
        ("What is 10²?", "What is 102?"),
        ("What is H₂O?", "What is H2O?"),
        ("What is 5!?", "What is 5?"),
        ("What is ; for?", "What is : for?"),
        ("कि क्या है?", "का क्या है?"),
    ],
)
def test_symbols_that_carry_meaning_tell_questions_apart(taught: str, other: str) -> None:
    assert loose_key(taught) != loose_key(other)
    assert loose_key(taught) == loose_key(f"“{taught.rstrip('?').upper()}” ...")


@pytest.mark.parametrize(
    ("asked", "taught"),
    [
        ("who’s at Anna's,  today", "Who's at Anna's today?"),
        ("¿Who's at (Anna's) today?!", "Who's at Anna's today?"),
        ("WHO'S AT ANNA'S TODAY", "Who's at Anna's today?"),
        ("Who's at Anna's today…", "Who's at Anna's today?"),
        ("what does frob(3) return", "What does `frob(3)` return?"),
    ],
)
def test_punctuation_at_the_ends_of_words_does_not(asked: str, taught: str) -> None:
    assert loose_key(asked) == loose_key(taught)


def test_a_question_that_differs_in_marks_alone_is_told() -> None:
    first = Task("1", (Item("Who is Xil?", "Bob"),))
    second = Stream((Task("2", (Item("who is xil", "Carl"),)),), "more")
    decided = plan([first], 1, second)
    assert not decided.corrected
    (notice,) = decided.notices
    assert "differ in case or punctuation alone and are two facts" in notice
    corrected = Stream((Task("3", (Item("Who is Xil?", "Dora"),)),), "more")
    assert plan(decided.tasks, 2, corrected).notices == (notice,)  # also if the first one is fresh
