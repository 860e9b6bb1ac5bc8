"""The rules of the house that no other tool checks; notebooks as they are committed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# What no tracked file may hold: places on somebody's machine, and package hosts. Written in pieces
# so that this file keeps its own rule. A path inside the repository is none of a machine.
PLACES = [rf"(?<![\w.~}}>-])/{name}/" for name in ("work", "root", "home", "Users", "opt")]
HOSTS = [r"pypi\." + "org", "python" + "hosted"]
# Code that no part of the program may hold: it runs what it reads.
UNSAFE = [
    "pickle",
    r"torch\.load\(",
    "trust_remote_code *= *True",
    r"yaml\.load\(",
    "shell *= *True",
]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
PROGRAM = ("holdfast/", "experiments/", "reference/", "scripts/", "benchmarks/")


def run(*arguments: str) -> str:
    """Run a command at the root; give what it printed."""
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """Every text file that is, or could be, tracked: its text by its path from the root."""
    try:
        names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except (AssertionError, FileNotFoundError):
        assert not os.environ.get("CI"), "this is no git checkout, which CI has"
        pytest.skip("this is no git checkout")
    texts = {}
    for name in filter(None, names.split("\0")):
        path = ROOT / name
        if path.is_file() and path.stat().st_size < 1_000_000:
            content = path.read_bytes()
            if b"\0" not in content:
                texts[name] = content.decode("utf-8")
    assert "pyproject.toml" in texts
    return texts


def violations(files: dict[str, str], patterns: list[str]) -> list[str]:
    """Each match as ``path:line: text``."""
    pattern = re.compile("|".join(patterns))
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in files.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_no_python_file_exceeds_400_lines(files: dict[str, str]) -> None:
    lengths = {name: text.count("\n") for name, text in files.items() if name.endswith(".py")}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_no_file_names_a_machine_or_a_package_host(files: dict[str, str]) -> None:
    assert violations(files, PLACES + HOSTS) == []


def test_the_program_reads_no_code_from_data(files: dict[str, str]) -> None:
    program = {
        name: text
        for name, text in files.items()
        if name.startswith(PROGRAM) and name.endswith(".py")
    }
    assert program
    assert violations(program, UNSAFE) == []


@pytest.mark.parametrize("text", ["x = '/" + "work/main'", "see /" + "home/a/b"])
def test_the_search_for_machines_finds_one(text: str) -> None:
    with pytest.raises(AssertionError):
        test_no_file_names_a_machine_or_a_package_host({"example.py": text})


def test_importing_holdfast_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'transformers', 'numpy', 'pandas', 'pydantic', 'rich', 'typer'}"
    check = f"import holdfast, sys; found = {heavy} & sys.modules.keys(); assert not found, found"
    run(sys.executable, "-c", check)


def test_the_lowest_versions_are_those_that_are_allowed() -> None:
    """``make lowest`` tries what is promised; torch is the exception that its file explains."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = [*project["dependencies"], *project["optional-dependencies"]["quantization"]]
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    pinned = [line for line in lines if not line.startswith(("#", "torch=="))]
    assert pinned == [
        line.replace(">=", "==") for line in promised if not line.startswith("torch>=")
    ]


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
