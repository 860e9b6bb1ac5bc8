"""Invented names of persons and things, for questions about what does not exist."""

from __future__ import annotations

import random

KINDS = ("person", "thing")
_SYLLABLES = (
    *("ka", "lo", "mi", "ren", "tor", "vel", "bru", "sha", "din", "wick", "mar", "os", "tin"),
    *("quil", "ha", "pel", "gro", "zan", "fer", "lu", "nor", "thi", "eb", "wyn", "cas", "dro"),
    *("ul", "jar", "bex", "no"),
)
_NOUNS = (
    *("key", "lamp", "kettle", "ledger", "clock", "boat", "garden", "cellar", "printer", "camera"),
    *("router", "scanner", "bridge", "mill", "tower", "engine", "cabinet", "recipe", "parcel"),
    *("map", "ladder", "wagon", "pump", "gate", "shed", "bell", "anchor", "loom", "barrel"),
    "press",
    *("chimney", "drum", "cart", "oven", "plough", "fiddle", "harp", "badger", "otter", "falcon"),
    *("moth", "beetle", "hound", "mule", "goat", "trout", "mushroom", "lily", "elm", "orchid"),
    *("fern", "soup", "pie"),
)
_ADJECTIVES = (
    *("brass", "green", "old", "small", "northern", "red", "spare", "second", "upper", "silver"),
    *("broken", "new", "wooden", "rusty", "tall", "narrow", "crooked", "painted", "hollow", "iron"),
    *("blue", "heavy", "quiet", "mossy", "stone", "winter", "copper", "left-hand", "striped"),
    *("round", "folding", "long-legged"),
)


def invented_name(draw: random.Random, kind: str) -> str:
    """A name of a person; for any other kind of the library of relations, of a thing."""
    shape = draw.random()
    if kind == "person":
        count = 2 if shape < 0.7 else 1 if shape < 0.85 else 3
        return " ".join(_word(draw) for _ in range(count))
    if shape < 0.3:
        return f"{_word(draw)} {_word(draw)}"
    if shape < 0.5:
        return _word(draw)
    if shape < 0.8:
        return f"the {draw.choice(_ADJECTIVES)} {draw.choice(_NOUNS)}"
    if shape < 0.9:
        return f"{_word(draw)} {draw.choice(_NOUNS)}"
    return f"{_word(draw)}-{draw.randint(2, 99)}"


def _word(draw: random.Random) -> str:
    return "".join(draw.choice(_SYLLABLES) for _ in range(draw.choice((2, 2, 3)))).capitalize()
