"""The program leaves out of a memory's commands what these never need."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.cli import start as module


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [
        (["ask", "memory", "Who?"], True),
        (["learn", "memory", "facts.jsonl"], True),
        (["ask", "other"], False),  # perhaps of a model in four bits
        (["export", "memory", "out"], False),
        (["ask"], False),
        ([], False),
    ],
)
def test_bitsandbytes_is_left_out_of_a_memory(
    arguments: list[str], left_out: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.json").write_text("{}")
    modules = dict(sys.modules)
    modules.pop("bitsandbytes", None)
    monkeypatch.setattr(sys, "modules", modules)
    called: list[dict[str, str]] = []
    monkeypatch.setattr(module, "app", lambda **how: called.append(how))
    monkeypatch.setattr(sys, "argv", ["holdfast", *arguments])
    module.start()
    assert called == [{"prog_name": "holdfast"}]
    assert (modules.get("bitsandbytes", "there") is None) is left_out
