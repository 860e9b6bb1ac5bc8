"""How a question may be spelled, what it names, and how far two name the same."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.plan import plan
from holdfast.memory.words import (
    agreement,
    deletions,
    is_typo,
    loose_key,
    names_other_number,
    nearest,
    plain_words,
    replace_name,
    taught_spellings,
    words,
)
from holdfast.streams import Item, Stream, Task

ALPHABET = "abcdefgh"
WORDS = st.text(ALPHABET, min_size=5, max_size=9)
ASKED = st.lists(
    st.sampled_from(["who", "rings", "the", "bell", "of", "a"]), min_size=1, max_size=6
)


def naming(question: str) -> dict[str, float]:
    """As a probe would: each word that the library does not ask with, by its length."""
    return {w.key: float(len(w.key)) for w in words(question) if w.key not in plain_words()}


def agreed(question: str, other: str) -> tuple[float, float]:
    return agreement(naming(question), naming(other))


def test_words_keep_the_symbols_that_carry_meaning() -> None:
    text = 'Is "C#" (or C++) 5% of -5, at 10:30? Anna\'s, James\', the cats’: "x_y"… ¿qué?'
    assert [word.text for word in words(text)] == [
        *("Is", "C#", "or", "C++", "5%", "of", "-5", "at", "10:30", "Anna", "James", "the"),
        *("cats", "x_y", "qué"),
    ]
    assert words(" ?! ... ") == ()
    assert [word.text for word in words("ﬁve\u00a0Å")] == ["five", "Å"]  # NFKC
    parts = [text[word.begin : word.end] for word in words(text)]
    assert parts == [part for part in text.split() if part != "…"]


@pytest.mark.parametrize(
    ("thing", "other"),
    [
        *(("C#", "C++"), ("C#", "C"), ("C++", "C"), ("5", "-5"), ("5", "5%"), ("-5", "5%")),
        *(("10:30", "10.30"), ("10:30", "1030"), ("v1.2", "v1.3"), ("7", "17")),
        *(("Baker", "Brake"), ("Marlo", "Marla Ostin"), ("Anne", "Anna")),
    ],
)
def test_other_things_are_other_things(thing: str, other: str) -> None:
    """And each agrees with itself, whatever stands around it."""
    asking = "What is the output of {}?"
    for name, second in ((thing, other), (other, thing)):
        covered, extra = agreed(asking.format(name), asking.format(second))
        assert covered < 1 or extra > 0
        assert agreed(asking.format(name), f"And now {name}'s output, please") == (1.0, 0.0)


@pytest.mark.parametrize(
    "asked",
    ["who is ELARA vint?", "Elara Vint's job", "elara, vint", "Elraa Vint", "Elarra vint"],
)
def test_a_name_is_one_in_other_spellings(asked: str) -> None:
    """In small letters, as a possessive, with a letter doubled or two swapped."""
    covered, extra = agreed("Who is Elara Vint?", asked)
    assert covered == 1 and extra == 0


@pytest.mark.parametrize(
    ("question", "other"),
    [
        ("Who was mayor of Velm on 3 May 1874?", "who was the mayor of velm on May 5th, 1874"),
        ("What is the code of room 4 in Velm Hall?", "What is the code of room five in Velm Hall?"),
        ("Who guards the third gate of Velm?", "Who guards the fifth gate of Velm?"),
        ("When did Henry IV of Velm die?", "When did Henry V of Velm die?"),
    ],
)
def test_another_number_is_another_thing(question: str, other: str) -> None:
    assert names_other_number(naming(question), naming(other))
    assert names_other_number(naming(other), naming(question))


@pytest.mark.parametrize(
    ("question", "other"),
    [
        ("Who was mayor of Velm on 3 May 1874?", "On May 3rd, 1,874, who was mayor of Velm?"),
        ("What is the code of room 4?", "What is the code of room four, in Velm 2?"),
        ("Who guards gate 3 of Velm?", "Who guards the gate of Velm?"),
    ],
)
def test_a_number_written_otherwise_or_left_out_is_no_other(question: str, other: str) -> None:
    assert not names_other_number(naming(question), naming(other))
    assert not names_other_number(naming(other), naming(question))


def test_a_shared_first_name_is_half_a_name() -> None:
    covered, extra = agreed("Where does Anna Berg live?", "Where does Anna Holt live?")
    assert 0.3 < covered < 0.7 and 0.3 < extra < 0.7
    covered, extra = agreed("Where does Anna Berg live?", "Where does Anna live?")
    assert covered < 0.7 and extra == 0


def test_what_names_nothing_agrees() -> None:
    """And a little naming weight, of which a probe is not sure, decides nothing."""
    assert {"what", "the", "of", "who", "where"} <= plain_words()
    assert agreement({}, {}) == (1.0, 0.0)
    covered, extra = agreement({}, {"x": 2.0})
    assert covered == 1 and extra == 1
    assert agreement({"x": 2.0}, {}) == (0.0, 0.0)
    covered, extra = agreement({"wifi": 0.2}, {"code": 0.1})
    assert covered == pytest.approx(0.8) and extra == pytest.approx(0.1)


def test_a_word_of_a_name_counts_wherever_the_other_question_has_it() -> None:
    """Though there it names nothing: *the password of the workshop*, *the workshop's password*."""
    taught = {"what": 0.0, "password": 0.9, "workshop": 0.6}
    asked = {"what": 0.0, "workshop": 0.0, "password": 1.0}
    assert agreement(taught, asked) == (1.0, 0.0)
    assert agreement(asked, taught) == (1.0, 0.0)
    covered, extra = agreement(taught, {"what": 0.0, "garage": 0.0, "password": 1.0})
    assert covered == pytest.approx(0.6) and extra == 0


def test_beside_a_name_other_words_weigh_little() -> None:
    """Words of the relation do not make two names one."""
    taught = {"hallway": 0.2, "plum": 2.0, "door": 2.0}
    covered, extra = agreement(taught, {"hallway": 0.2, "bellrope": 3.0})
    assert covered < 0.2 and extra > 0.8
    assert agreement(taught, {"corridor": 0.3, "plum": 1.9, "door": 2.0})[0] > 0.9


def test_a_name_is_replaced_as_it_is_written() -> None:
    names = {"plum": 2.0, "door": 2.0, "hallway": 0.2}
    asked = "What does the hallway of  Plum Door's smell of?"
    other = replace_name(asked, names, "Bellrope")
    assert other == "What does the hallway of  Bellrope's smell of?"
    assert replace_name("What is it?", names, "Bellrope") is None


def distance(word: str, other: str) -> int:
    """Edits between two words, a swap of neighbours counting as one (optimal string alignment)."""
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(word, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and word[i - 2] == b:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


@given(WORDS, WORDS)
def test_a_typo_is_one_edit(word: str, other: str) -> None:
    assert is_typo(word, other) == (distance(word, other) <= 1)


@given(WORDS, st.integers(0, 9), st.sampled_from(["leave out", "put in", "replace", "swap"]))
def test_every_typo_shares_a_key_of_the_index(word: str, place: int, edit: str) -> None:
    place %= len(word) - 1
    before, after = word[:place], word[place:]
    typed = {
        "leave out": before + after[1:],
        "put in": f"{before}x{after}",
        "replace": f"{before}x{after[1:]}",
        "swap": before + after[1] + after[0] + after[2:],
    }[edit]
    assert deletions(word) & deletions(typed)
    assert is_typo(word, typed) == (len(typed) >= 5)


def test_short_words_and_numbers_have_no_typos() -> None:
    assert not is_typo("Anne", "Anna") and not is_typo("47110", "47111")


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


@given(ASKED, st.lists(ASKED, max_size=6))
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
