"""Symbol-QA against published values and a literal reading of its rule."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.streams import symbol_qa
from tests.refused import line_of

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
def test_fewer_tasks_are_a_prefix_even_when_keys_collide(
    seed: int, fewer: int, more: int, items: int
) -> None:
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
