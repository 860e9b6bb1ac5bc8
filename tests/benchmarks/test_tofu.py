"""What is asked before and after facts are forgotten."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import tofu
from holdfast.streams.item import Item

FACTS = [
    Item("Where is the key?", "mill", details={"relation": "place"}),
    Item("Where is the lamp?", "barn", details={"relation": "place"}),
    Item("Who bakes?", "Lum", details={"relation": "baker", "held_out": ["The baker is"]}),
]


def test_a_relation_with_one_fact_borrows_its_wrong_answers() -> None:
    assert tofu.wordings(FACTS[0], FACTS, 1) == [("Where is the key?", ["mill", "barn"])]
    taught, other = tofu.wordings(FACTS[2], FACTS, 1)
    assert taught[1][0] == "Lum" and set(taught[1][1:]) == {"mill", "barn"}
    assert other == ("The baker is", taught[1])


@pytest.mark.parametrize("count", ["0", "3"])
def test_facts_that_the_memory_has_not_are_refused_in_a_line(
    count: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "memory").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"{name}_perturbed.json").touch()
    monkeypatch.setattr(tofu, "Memory", lambda _: SimpleNamespace(learned=FACTS))
    place = str(tmp_path / "memory")
    monkeypatch.setattr(sys, "argv", ["tofu", place, str(tmp_path), "--facts", count])
    with pytest.raises(SystemExit):
        tofu.main()
    assert f"--facts {count}: the memory has 3; give fewer" in capsys.readouterr().err
