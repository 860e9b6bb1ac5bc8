"""A build of a stream that is killed for good, and called again."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from tests.forked import Forked


def sources(root: Path) -> Path:
    """Two sources of invented questions, more than a model is given at once."""
    for name, file in (("nq_open", "NQ-open.dev.jsonl"), ("sciq", "valid.json")):
        (root / name).mkdir(parents=True)
        rows = [
            {"question": f"{name} question {n}", "answer": [f"a{n}"], "correct_answer": f"a{n}"}
            for n in range(140)
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
    paper, tmp_path: Path, tiny_directory: Path
) -> None:
    build = ["stream", "real-qa", "--data-root", sources(tmp_path / "sources"), "--backbone",
             tiny_directory, "--tasks", 2, "--items", 50, "--sources", "nq_open,sciq",
             "--out"]  # fmt: skip
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    first = Forked([*build, killed], module="experiments.paper")
    verdicts = killed / "verdicts" / "nq_open.jsonl"
    deadline = time.monotonic() + 120
    while first.poll() is None and not verdicts.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL  # one source was asked, the other not yet
    assert not (killed / "manifest.json").exists()

    for out in (killed, whole):
        made = paper(*build, out)
        assert made.status == 0, made.err
    assert contents(killed) == contents(whole)
    assert len(contents(whole)) == 2 * 3 + 1 + 3  # tasks, manifest, verdicts and their settings
