"""A build of a stream that is killed for good, and called again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMAND = "from holdfast.cli.main import app; app()"


def sources(root: Path) -> Path:
    """Two sources of invented questions, more than a model is given at once."""
    for name, file in (("nq_open", "NQ-open.dev.jsonl"), ("sciq", "valid.json")):
        (root / name).mkdir(parents=True)
        rows = [
            {"question": f"{name} question {n}", "answer": [f"a{n}"], "correct_answer": f"a{n}"}
            for n in range(300)
        ]
        text = json.dumps(rows) if name == "sciq" else "\n".join(map(json.dumps, rows))
        (root / name / file).write_text(text)
    return root


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_real_qa_killed_and_called_again_is_the_same_to_the_byte(
    tmp_path: Path, tiny_directory: Path
) -> None:
    root = sources(tmp_path / "sources")

    def start(out: Path) -> subprocess.Popen[bytes]:
        arguments = ["--data-root", root, "--backbone", tiny_directory, "--out", out]
        size = ["--tasks", 2, "--items", 100, "--sources", "nq_open,sciq"]
        command = [sys.executable, "-c", COMMAND, "stream", "real-qa", *map(str, arguments + size)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    killed, whole = tmp_path / "killed", tmp_path / "whole"
    first = start(killed)
    verdicts = killed / "verdicts" / "nq_open.jsonl"
    deadline = time.monotonic() + 120
    while first.poll() is None and not verdicts.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL  # one source was asked, the other not yet
    first.communicate()
    assert not (killed / "manifest.json").exists()

    for out in (killed, whole):
        process = start(out)
        _, error = process.communicate(timeout=240)
        assert process.returncode == 0, error.decode()
    assert contents(killed) == contents(whole)
    assert len(contents(whole)) == 2 * 3 + 1 + 3  # tasks, manifest, verdicts and their settings
