"""Items, tasks and streams as values: what they refuse, and what their fingerprints cover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream, Task, braces_balance, symbol_qa
from tests.refused import line_of

FRANCE = Item("capital of France?", "Paris")
SPAIN = Item("capital of Spain?", "Madrid", ("Madrid, Spain",))


def test_whitespace_around_texts_is_stripped() -> None:
    item = Item(" q\n", "\ta b ", [" c "], " 7 ")  # type: ignore[arg-type]
    assert item == Item("q", "a b", ("c",), "7")
    # Lines keep their places to each other.
    assert Item("q", "\n    if a:\r\n        b\n\n    c\n").answer == "if a:\n    b\n\nc"
    assert Item("q", "    a\n    b\n  c").answer == "a\n    b\n  c"  # nothing is alike


@given(st.text(alphabet="{}a\\", max_size=12))
def test_balanced_is_exactly_what_reads_back_from_a_box(answer: str) -> None:
    depth, content = 1, ""
    for symbol in answer + "}":
        depth += {"{": 1, "}": -1}.get(symbol, 0)
        if depth == 0:
            break
        content += symbol
    assert braces_balance(answer) == (depth == 0 and content == answer)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("", "a"), '"question" is empty; every item needs a question and an answer'),
        (("q", " \n"), '"answer" is empty; every item needs a question and an answer'),
        (("\u200b \ufeff", "a"), '"question" is empty; every item needs a question and an answer'),
        (("q", 4), '"answer" is 4, which is no text; write a text in quotes'),
        (("q", "a", ("",)), '"aliases" is empty; fill it or leave it out'),
        (("q", "a", "bc"), "\"aliases\" is 'bc'; write a list of texts"),
        (("a\0b", "a"), r'"question" "a\0b" holds the character NUL; remove it'),
        (
            ("q\ud800", "a"),
            '"question" "q\\ud800" is no valid Unicode; retype it, or convert it to UTF-8',
        ),
    ],
)
def test_a_bad_item_is_refused(values: tuple[str, ...], message: str) -> None:
    assert line_of(Item, *values) == message


@pytest.mark.parametrize("other", ["caf\u200be\u0301?", "caf\u00e9? ", " caf\u00e9  ?"])
def test_spacing_invisible_characters_and_coding_make_no_other_question(other: str) -> None:
    first = Item("caf\u00e9 ?" if "  " in other else "caf\u00e9?", "1")
    with pytest.raises(HoldfastError, match="two answers for one question"):
        Stream((Task("a", (first, Item(other, "2"))),), "s")
    with pytest.raises(HoldfastError, match='already stands at task "a" item 1 with the same answ'):
        Stream((Task("a", (first, Item(other, "1"))),), "s")


def test_two_answers_for_one_question_name_both_places() -> None:
    tasks = (Task("a", (SPAIN, FRANCE)), Task("b", (Item(FRANCE.question, "Lyon"),)))
    assert line_of(Stream, tasks, "s") == (
        'task "b" item 1: two answers for one question: "capital of France?" is "Lyon" here and '
        '"Paris" at task "a" item 2; keep one, or list the other as an alias'
    )


def test_case_makes_another_question() -> None:
    assert Stream((Task("a", (Item("Ab", "1"), Item("aB", "2"))),), "s").tasks[0].items


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Stream((), "s"), 'stream "s" has no tasks; it needs at least one'),
        (lambda: Task("a", ()), 'task "a" has no items; a task needs at least one'),
        (
            lambda: Task("a", (("Q?", "A"),)),
            'task "a" has something else than items; give Item(question, answer)',
        ),
        (lambda: Task(" ", (FRANCE,)), '"task" is empty; fill it or leave it out'),
        (
            lambda: Stream((Task("a", (FRANCE,)), Task("a", (SPAIN,))), "s"),
            'stream "s" has two tasks named "a"; give each its own name',
        ),
    ],
)
def test_empty_and_repeated_tasks_are_refused(make: Callable[[], object], message: str) -> None:
    assert line_of(make) == message


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
