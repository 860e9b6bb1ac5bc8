"""What a configuration file may not hold, and which files of runs and studies are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import NonNegativeInt, PositiveInt

from holdfast.core.config import FORMAT, Config, build, read_format, read_yaml
from holdfast.studies.directory import lock_study
from tests.refused import line_of


class Inner(Config):
    rate: float = 0.5
    kept: bool = False


class Outer(Config):
    seed: int = 1
    inner: Inner = Inner()
    most: int | None = None
    when: Literal["never"] | PositiveInt = "never"
    layers: tuple[NonNegativeInt, ...] | None = None
    names: tuple[str, ...] | Literal["all"] = "all"


def test_keys_stand_once_and_aliases_are_read(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("base: &base {rate: 0.1}\ninner:\n  <<: *base\n  kept: true\n")
    assert read_yaml(path)["inner"] == {"rate": 0.1, "kept": True}
    for text in ("rate: 1\nrate: 2\n", "inner:\n  rate: 0.1\n  kept: true\n  rate: 0.2\n"):
        path.write_text(text)
        assert "the key rate stands there twice" in line_of(read_yaml, path)


def test_a_truth_value_may_stand_where_it_belongs() -> None:
    assert build(Outer, {"inner": {"kept": True}}, source="here").inner.kept


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": True}, "seed = true: is no number; write one"),
        ({"inner": {"rate": False}}, "inner.rate = false: is no number; write one"),
        ({"most": True}, "most = true: is no number; write one"),
        ({"when": True}, "when = true: is no number; write one"),
        ({"layers": [0, True]}, "layers = [0, true]: is no number; write one"),
        ({"when": 0}, "when = 0: Input should be 'never', or greater than 0"),
        ({"names": "one"}, "names = \"one\": Input should be a list, such as [a,b], or 'all'"),
        ({"names": [1]}, "names = [1]: Input should be a valid string, or 'all'"),
        ({"layers": [-1]}, "layers.0 = -1: Input should be greater than or equal to 0"),
    ],
)
def test_a_wrong_value_is_told_with_all_that_it_might_be(values: Any, message: str) -> None:
    assert line_of(build, Outer, values, source="here") == f"here: {message}"


def written(path: Path, values: Any) -> Path:
    path.write_text(json.dumps(values))
    return path


def test_a_file_of_this_format_is_read_without_it(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    assert read_format(written(path, {"format": FORMAT, "study": "suite"})) == {"study": "suite"}
    for others in ({"model_type": "llama"}, [1]):  # of other programs
        assert read_format(written(path, others)) == others
    for values in ({"study": "suite"}, {"numbers": {}}, {"format": 3, "study": 1}):
        advice = "take a newer" if "format" in values else "commit 31412b6 reads it"
        line = line_of(read_format, written(path, values))
        assert line.startswith(f"{path}: was written by another version") and advice in line


def test_a_study_of_another_format_is_not_continued(tmp_path: Path) -> None:
    settings = {"study": "suite"}
    for _ in range(2):
        with lock_study(tmp_path, settings, tmp_path / "cells"):
            pass
    written(tmp_path / "study.json", settings)
    study = lock_study(tmp_path, settings, tmp_path / "cells")
    assert "another version" in line_of(study.__enter__)
