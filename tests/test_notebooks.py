"""The notebooks of the documentation as they are committed; `make docs` executes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.documentation import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks_and_they_are_executed_by_a_build() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"first-study", "new-anchor"}
    settings = (ROOT / "docs" / "conf.py").read_text("utf-8")
    assert 'nb_execution_mode = "force"' in settings
    assert "nb_execution_allow_errors" not in settings
    assert "sphinx -b html -W" in (ROOT / "Makefile").read_text("utf-8")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_what_a_machine_adds(path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}, "clear the metadata"
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), "clear the outputs"
            compile("".join(cell["source"]), path.name, "exec")
