"""What a configuration file may not hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.config import Config, build, read_yaml
from holdfast.core.errors import HoldfastError


class Inner(Config):
    rate: float = 0.5
    kept: bool = False


class Outer(Config):
    seed: int = 1
    inner: Inner = Inner()


@pytest.mark.parametrize(
    "text", ["seed: 1\nseed: 2\n", "inner:\n  rate: 0.1\n  kept: true\n  rate: 0.2\n"]
)
def test_a_key_twice_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(text)
    with pytest.raises(HoldfastError, match=r"the key (seed|rate) stands there twice") as refused:
        read_yaml(path)
    assert len(str(refused.value).splitlines()) == 1


def test_aliases_and_merges_are_read(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("base: &base {rate: 0.1}\ninner:\n  <<: *base\n  kept: true\n")
    assert read_yaml(path)["inner"] == {"rate": 0.1, "kept": True}


@pytest.mark.parametrize("values", [{"seed": True}, {"inner": {"rate": False}}])
def test_a_truth_value_is_no_number(values: dict[str, object]) -> None:
    with pytest.raises(HoldfastError, match="is no number; write one"):
        build(Outer, values, source="here")
    assert build(Outer, {"inner": {"kept": True}}, source="here").inner.kept
