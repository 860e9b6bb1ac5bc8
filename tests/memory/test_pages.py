"""What the pages on memories show, done as a reader would do it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from holdfast.memory.facts import stream_from
from tests.test_docs import ROOT, files_in

PAGE = ROOT / "docs" / "memory.md"


def test_the_commands_of_the_readme_answer(tmp_path):
    section = (ROOT / "README.md").read_text("utf-8").partition("## A memory of your own\n")[2]
    script = re.search(r"```console\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[1]
    command = tmp_path / "bin" / "holdfast"
    command.parent.mkdir()
    command.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from holdfast.cli.main import app; app()' \"$@\"\n"
    )
    command.chmod(0o755)
    paths = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": paths, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "batch 1: 1 of 1 facts recalled",
        "all so far: 1 of 1 facts recalled",
        "memory",
        "Orsa Tindle",
    ]


def test_the_table_of_the_page_is_one(tmp_path: Path):
    (tmp_path / "facts.csv").write_text(files_in(PAGE)["facts.csv"], "utf-8")
    (task,) = stream_from(tmp_path / "facts.csv").tasks
    assert [item.aliases for item in task.items] == [(), (), ("40",)]
