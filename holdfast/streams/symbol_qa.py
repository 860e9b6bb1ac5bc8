"""Symbol-QA: random keys with random values, so that answers can only be memorised."""

from __future__ import annotations

import string
from random import Random

from holdfast.core.errors import HoldfastError
from holdfast.streams.item import Item
from holdfast.streams.stream import Stream, Task

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits

# As in the published stream: task i is drawn with seed + TASK_STRIDE·i, and shuffled with that
# seed + SHUFFLE_OFFSET.
TASK_STRIDE = 1009
SHUFFLE_OFFSET = 7


def symbol_qa(
    tasks: int = 100, items: int = 100, seed: int = 42, key_length: int = 6, value_length: int = 4
) -> Stream:
    """Generate Symbol-QA; the defaults give the published stream.

    items: in each task. The question is the key, the answer the value. Items are in training order;
    the id ``task_0_item_0`` gives an item's task and its place in the order of drawing, both from
    0. Fewer tasks give a prefix of the same stream.

    Raises HoldfastError for a number out of range, or for more items than there are keys.
    Source: app:data-symbol.
    """
    # Random(-5) equals Random(5), so a negative seed would quietly repeat a positive one.
    if seed < 0:
        raise HoldfastError(f"symbol_qa: seed = {seed}; use 0 or more")
    about = {"seed": seed, "key_length": key_length, "value_length": value_length}
    for name, size in {"tasks": tasks, "items": items, **about}.items():
        if size < 1 and name != "seed":
            raise HoldfastError(f"symbol_qa: {name} = {size}; use 1 or more")
    keys = len(ALPHABET) ** key_length
    if tasks * items > keys:
        raise HoldfastError(
            f"symbol_qa: {tasks} tasks of {items} items need {tasks * items} keys, but there are "
            f"{keys} of {key_length} symbols; ask for fewer items or longer keys"
        )
    used: set[str] = set()
    made = []
    for index in range(tasks):
        # The index counts from 0: task 1 of the published stream is drawn with ``seed`` itself.
        task_seed = seed + TASK_STRIDE * index
        random = Random(task_seed)
        drawn = []
        for number in range(items):
            key = _symbols(random, key_length)
            while key in used:
                key = _symbols(random, key_length)
            used.add(key)
            value = _symbols(random, value_length)
            drawn.append(Item(question=key, answer=value, id=f"task_{index}_item_{number}"))
        Random(task_seed + SHUFFLE_OFFSET).shuffle(drawn)
        made.append(Task(name=str(index + 1), items=tuple(drawn)))
    return Stream(
        tuple(made),
        name="symbol_qa",
        exact_case=True,
        about={"dataset_type": "symbol_qa", **about},
    )


def _symbols(random: Random, length: int) -> str:
    # One choice() per symbol, as published; choices() would consume the generator differently.
    return "".join(random.choice(ALPHABET) for _ in range(length))
