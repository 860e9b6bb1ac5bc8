"""The cache of what a model writes itself: killed at any write or damaged, the same texts."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

from tests.soak.own import write
from tests.soak.test_places import damaged
from tests.trajectory.children import begin, finish

TIMES = int(os.environ.get("HOLDFAST_SOAK", "1"))


def cached(cache: Path) -> bytes:
    (path,) = (cache / "own").glob("[!.]*")
    return path.read_bytes()


def digit_changed(content: bytes, draw: random.Random) -> bytes:
    """JSON still, and another token."""
    place = draw.choice([place for place, byte in enumerate(content) if chr(byte).isdigit()])
    digit = draw.choice([digit for digit in b"0123456789" if digit != content[place]])
    return content[:place] + bytes([digit]) + content[place + 1 :]


def test_killed_at_its_writes_it_has_the_same_texts(tmp_path: Path) -> None:
    """A kill every few writes until a process survives: the file has the bytes of one process."""
    write(str(tmp_path / "whole"))
    draw, deaths = random.Random("cache"), 0
    for number in range(TIMES):
        cache = tmp_path / str(number)
        for _ in range(100):
            instant = draw.randint(1, 40)
            status, words = finish(begin(write, (str(cache),), instant=instant))
            if status == 0:
                break
            assert status == -signal.SIGKILL, words
            deaths += 1
        assert words == "done"
        assert cached(cache) == cached(tmp_path / "whole")
    assert deaths
    print(f"soak: own texts: {deaths} kills")  # noqa: T201


def test_a_damaged_file_is_written_anew(tmp_path: Path) -> None:
    """A digit changed, a bit flipped, an end cut off: other texts are never the model's."""
    texts = write(str(tmp_path))
    content = cached(tmp_path)
    (path,) = (tmp_path / "own").glob("[!.]*")
    draw, outcomes = random.Random("damage"), Counter[str]()
    for _ in range(8 * TIMES):
        path.write_bytes(draw.choice([digit_changed, damaged])(content, draw))
        assert write(str(tmp_path)) == texts
        outcomes["anew" if cached(tmp_path) == content else "harmless"] += 1
    assert outcomes["anew"]
