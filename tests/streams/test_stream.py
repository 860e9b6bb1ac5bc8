"""Items, tasks and streams as values; Symbol-QA against a literal reading of its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream, Task, braces_balance, symbol_qa
from holdfast.streams.item import evenly
from tests.refused import line_of

FRANCE = Item("capital of France?", "Paris")
SPAIN = Item("capital of Spain?", "Madrid", ("Madrid, Spain",))


def test_whitespace_around_texts_is_stripped() -> None:
    item = Item(" q\n", "\ta b ", [" c "], " 7 ")  # type: ignore[arg-type]
    assert item == Item("q", "a b", ("c",), "7")
    # Lines keep their places to each other.
    assert Item("q", "\n    if a:\r\n        b\n\n    c\n").answer == "if a:\n    b\n\nc"
    assert Item("q", "    a\n    b\n  c").answer == "a\n    b\n  c"  # nothing is alike


def test_a_few_of_many_are_spread_evenly() -> None:
    assert evenly("abcdefg", 3) == ["a", "c", "e"]
    assert evenly("abc", 3) == evenly("abc", 4) == evenly("abc", None) == ["a", "b", "c"]


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


SYMBOLS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def test_the_whole_published_stream_follows_the_rule_literally() -> None:
    published = symbol_qa()
    assert len(published.tasks) == 100
    for index, task in enumerate(published.tasks):
        random = Random(42 + 1009 * index)
        pairs = []
        for _ in range(100):
            key = "".join(random.choice(SYMBOLS) for _ in range(6))
            pairs.append((key, "".join(random.choice(SYMBOLS) for _ in range(4))))
        Random(42 + 1009 * index + 7).shuffle(pairs)
        assert [(item.question, item.answer) for item in task.items] == pairs
    (first,) = [item for item in published.tasks[0].items if item.id == "task_0_item_0"]
    assert (first.question, first.answer) == ("oHBvRP", "OIvG")


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**40),
    fewer=st.integers(1, 6),
    more=st.integers(0, 6),
    items=st.integers(1, 300),
)
def test_fewer_tasks_are_a_prefix_even_when_keys_collide(seed, fewer, more, items) -> None:
    # 3844 keys of two symbols: at 300 items a task, redraws are certain.
    short = symbol_qa(fewer, items, seed, key_length=2)
    long = symbol_qa(fewer + more, items, seed, key_length=2)
    assert long.tasks[:fewer] == short.tasks


def test_a_redraw_replaces_the_key_alone() -> None:
    random = Random(3)
    used: list[str] = []
    pairs = []
    for _ in range(40):
        key = random.choice(SYMBOLS)
        while key in used:
            key = random.choice(SYMBOLS)
        used.append(key)
        pairs.append((key, random.choice(SYMBOLS)))
    stream = symbol_qa(1, 40, 3, key_length=1, value_length=1)
    drawn = sorted(stream.tasks[0].items, key=lambda item: int(str(item.id).split("_")[-1]))
    assert [(item.question, item.answer) for item in drawn] == pairs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"tasks": 2, "items": 32, "key_length": 1},
            "symbol_qa: 2 tasks of 32 items need 64 keys, but there are 62 of 1 symbols; "
            "ask for fewer items or longer keys",
        ),
        ({"tasks": 0}, "symbol_qa: tasks = 0; use 1 or more"),
        ({"value_length": 0}, "symbol_qa: value_length = 0; use 1 or more"),
        ({"seed": -1}, "symbol_qa: seed = -1; use 0 or more"),
    ],
)
def test_the_impossible_is_refused(arguments: dict[str, int], message: str) -> None:
    assert line_of(symbol_qa, **arguments) == message
