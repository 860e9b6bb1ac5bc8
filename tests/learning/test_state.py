"""What a run keeps is read as it was."""

from __future__ import annotations

from pathlib import Path

import torch

from holdfast.learning.state import Commit, Store


def test_what_is_read_lies_in_memory_like_what_was_made(tmp_path: Path) -> None:
    """A product of what begins elsewhere may round otherwise, and a run that goes on differ."""
    store = Store(tmp_path)
    made = {"odd": torch.rand(3), "next": torch.rand(5, 7), "last": torch.rand(7, 11)}
    size_and_digest = store.save("a.safetensors", made)
    read = store.load(Commit(files={"a.safetensors": size_and_digest}), "a.safetensors")
    assert all(torch.equal(read[name], tensor) for name, tensor in made.items())
    assert {tensor.data_ptr() % 64 for tensor in read.values()} == {0}
