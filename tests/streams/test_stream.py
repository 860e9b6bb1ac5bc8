"""Items, tasks and streams as values: what they refuse, and what their fingerprints cover."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream, Task, braces_balance, symbol_qa

FRANCE = Item("capital of France?", "Paris")
SPAIN = Item("capital of Spain?", "Madrid", ("Madrid, Spain",))


def test_whitespace_around_texts_is_stripped() -> None:
    item = Item(" q\n", "\ta b ", [" c "], " 7 ")  # type: ignore[arg-type]
    assert item == Item("q", "a b", ("c",), "7")


@given(st.text(alphabet="{}a\\", max_size=12))
def test_balanced_is_exactly_what_reads_back_from_a_box(answer: str) -> None:
    depth, content = 1, ""
    for symbol in answer + "}":
        depth += {"{": 1, "}": -1}.get(symbol, 0)
        if depth == 0:
            break
        content += symbol
    assert braces_balance(answer) == (depth == 0 and content == answer)


@pytest.mark.parametrize("answer", ["a}b", "{x"])
@pytest.mark.parametrize("kind", ["answer", "alias"])
def test_an_answer_that_cannot_be_read_back_is_refused(answer: str, kind: str) -> None:
    with pytest.raises(HoldfastError) as raised:
        Item("q", answer) if kind == "answer" else Item("q", "a", (answer,))
    assert str(raised.value) == (
        f'the {kind} "{answer}" of question "q" has unbalanced braces, so it cannot be read back '
        "from \\boxed{...}; balance or remove them"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("", "a"), '"question" is empty; every item needs a question and an answer'),
        (("q", " \n"), '"answer" is empty; every item needs a question and an answer'),
        (("q", 4), '"answer" is 4, which is no text; write a text in quotes'),
        (("q", "a", ("",)), '"aliases" is empty; fill it or leave it out'),
        (("q", "a", "bc"), "\"aliases\" is 'bc'; write a list of texts"),
        (
            ("q\ud800", "a"),
            '"question" "q\\ud800" is no valid Unicode (half of a surrogate pair); retype it',
        ),
        (
            ("q\udcc3", "a"),
            '"question" "q\\udcc3" is no valid Unicode (its bytes are not UTF-8); convert it, '
            "or use a terminal in UTF-8",
        ),
    ],
)
def test_a_bad_item_is_refused(values: tuple[str, ...], message: str) -> None:
    with pytest.raises(HoldfastError) as raised:
        Item(*values)  # type: ignore[arg-type]
    assert str(raised.value) == message


def test_a_long_question_is_shortened_and_kept_on_one_line() -> None:
    with pytest.raises(HoldfastError) as raised:
        Item("word\n" * 100, "}")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


def test_two_answers_for_one_question_name_both_places() -> None:
    with pytest.raises(HoldfastError) as raised:
        Stream((Task("a", (SPAIN, FRANCE)), Task("b", (Item(FRANCE.question, "Lyon"),))), "s")
    assert str(raised.value) == (
        'task "b" item 1: two answers for one question: "capital of France?" is "Lyon" here and '
        '"Paris" at task "a" item 2; keep one, or list the other as an alias'
    )


def test_a_repeated_item_names_both_places() -> None:
    with pytest.raises(HoldfastError) as raised:
        Stream((Task("a", (FRANCE, FRANCE)),), "s")
    assert str(raised.value) == (
        'task "a" item 2: question "capital of France?" already stands at task "a" item 1 with '
        "the same answer; remove one of them"
    )


def test_two_codings_of_one_question_are_one_question() -> None:
    composed, decomposed = (unicodedata.normalize(form, "café?") for form in ("NFC", "NFD"))
    assert composed != decomposed
    with pytest.raises(HoldfastError, match="two answers for one question"):
        Stream((Task("a", (Item(composed, "1"), Item(decomposed, "2"))),), "s")


@pytest.mark.parametrize("other", ["caf\u200be?", "cafe? "])
def test_what_cannot_be_seen_makes_no_other_question(other: str) -> None:
    with pytest.raises(HoldfastError, match="two answers for one question"):
        Stream((Task("a", (Item("cafe?", "1"), Item(other, "2"))),), "s")
    with pytest.raises(HoldfastError, match="already stands at"):
        Stream((Task("a", (Item("cafe?", "1"), Item(other, "1"))),), "s")


def test_spacing_makes_no_other_question() -> None:
    with pytest.raises(HoldfastError, match=r"but for spacing or invisible characters\) already"):
        Stream((Task("a", (Item("a b?", "1"), Item("a  b?", "1"))),), "s")


@pytest.mark.parametrize(
    ("question", "message"),
    [("a\0b", r'"a\\0b" holds the character NUL'), ("\u200b \ufeff", '"question" is empty')],
)
def test_what_no_one_can_read_is_no_question(question: str, message: str) -> None:
    with pytest.raises(HoldfastError, match=message):
        Item(question, "1")


def test_case_makes_another_question() -> None:
    assert Stream((Task("a", (Item("Ab", "1"), Item("aB", "2"))),), "s").tasks[0].items


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stream((), "s"), 'stream "s" has no tasks; it needs at least one'),
        (lambda: Task("a", ()), 'task "a" has no items; a task needs at least one'),
        (lambda: Task(" ", (FRANCE,)), '"task" is empty; fill it or leave it out'),
        (
            lambda: Stream((Task("a", (FRANCE,)), Task("a", (SPAIN,))), "s"),
            'stream "s" has two tasks named "a"; give each its own name',
        ),
    ],
)
def test_empty_and_repeated_tasks_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(HoldfastError) as raised:
        make()
    assert str(raised.value) == message


@pytest.mark.parametrize("tasks", [0, 3])
def test_a_prefix_that_is_not_there_is_refused(tasks: int) -> None:
    stream = Stream((Task("a", (FRANCE,)), Task("b", (SPAIN,))), "s")
    with pytest.raises(HoldfastError) as raised:
        stream.first(tasks)
    assert str(raised.value) == (
        f'stream "s" has no first {tasks} tasks, as it holds 2; set tasks to a number from 1 to 2'
    )


def test_fingerprints_ignore_names_and_ids() -> None:
    stream = Stream((Task("a", (FRANCE,)), Task("b", (SPAIN,))), "s")
    renamed = Stream((Task("x", (replace(FRANCE, id="7"),)), Task("y", (SPAIN,))), "t")
    assert renamed.fingerprint == stream.fingerprint
    assert renamed.tasks[0].fingerprint == stream.tasks[0].fingerprint


@pytest.mark.parametrize(
    "tasks",
    [
        (Task("a", (FRANCE, SPAIN)),),
        (Task("b", (SPAIN,)), Task("a", (FRANCE,))),
        (Task("a", (FRANCE,)), Task("b", (replace(SPAIN, aliases=()),))),
        (Task("a", (replace(FRANCE, answer="paris"),)), Task("b", (SPAIN,))),
        (Task("a", (replace(FRANCE, question="Capital of France?"),)), Task("b", (SPAIN,))),
        (Task("a", (FRANCE,)),),
    ],
)
def test_fingerprints_cover_content_order_and_cuts(tasks: tuple[Task, ...]) -> None:
    stream = Stream((Task("a", (FRANCE,)), Task("b", (SPAIN,))), "s")
    assert Stream(tasks, "s").fingerprint != stream.fingerprint


def test_fingerprints_stay_the_same_between_versions() -> None:
    assert symbol_qa().fingerprint == (
        "e9d955fd5c65ff6f2899e0d438e78a20729a27d4ee944f221344bc2a09a84975"
    )
