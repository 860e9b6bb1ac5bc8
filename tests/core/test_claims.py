"""Which files of runs and studies are read, by their format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.config import FORMAT, read_format
from holdfast.core.errors import HoldfastError
from holdfast.studies.study import claimed


def written(path: Path, values: Any) -> Path:
    path.write_text(json.dumps(values))
    return path


def test_a_file_of_this_format_is_read_without_it(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    assert read_format(written(path, {"format": FORMAT, "study": "suite"})) == {"study": "suite"}
    for others in ({"model_type": "llama"}, [1]):  # of other programs
        assert read_format(written(path, others)) == others


@pytest.mark.parametrize("values", [{"study": "suite"}, {"numbers": {}}, {"format": 3, "study": 1}])
def test_another_format_is_refused_in_one_line(values: Any, tmp_path: Path) -> None:
    path = written(tmp_path / "study.json", values)
    told = "take a newer" if "format" in values else "commit 6a3d55a reads it"
    with pytest.raises(HoldfastError, match=told) as refused:
        read_format(path)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)


def test_a_study_of_another_format_is_not_continued(tmp_path: Path) -> None:
    question = {"study": "suite"}
    with claimed(tmp_path, question, tmp_path / "cells"):
        pass
    with claimed(tmp_path, question, tmp_path / "cells"):
        pass
    written(tmp_path / "study.json", question)
    with (
        pytest.raises(HoldfastError, match="another version"),
        claimed(tmp_path, question, tmp_path / "cells"),
    ):
        pass
