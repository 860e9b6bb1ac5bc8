"""Streams through an endpoint, by the embedded model, and killed for good and called again."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections import Counter
from pathlib import Path

from holdfast.streams import load_stream
from tests.forked import Forked
from tests.serving.stand_in import choices, standing_in
from tests.trajectory.outcome import contents_of


def test_a_stream_is_written_through_an_endpoint(paper, tmp_path: Path) -> None:
    numbers = itertools.count()

    def inventing(body):
        names = [f"Orl{next(numbers)}" for _ in range(4)]
        rows = [{"entity": n, "question": f"Who keeps {n}?", "answer": "Ida"} for n in names]
        return choices(body, json.dumps(rows))

    stream = tmp_path / "stream"
    with standing_in(inventing) as server:
        ask = ["stream", "llm-qa", "--endpoint", server.url, "--out", stream, "--tasks", 2]
        ask += ["--items", 8]
        short = paper(*ask, "--budget", 2)
        assert short.status == 2
        assert "short" in short.err and short.err.count("\n") <= 2
        replies = (stream / "replies.jsonl").read_bytes()
        made = paper(*ask)
        assert made.status == 0, made.err
        assert (stream / "replies.jsonl").read_bytes().startswith(replies)  # none is thrown away
        asked = len(server.asked)
        assert paper(*ask).out == made.out
        assert len(server.asked) == asked == 4
    manifest = json.loads((stream / "manifest.json").read_text())
    assert (manifest["writer"], manifest["grammar"]) == ("first", False)
    assert [len(task.items) for task in load_stream(stream).tasks] == [8, 8]


def sources(root: Path) -> Path:
    """Two sources of invented questions."""
    for name, file in (("nq_open", "NQ-open.dev.jsonl"), ("sciq", "valid.json")):
        (root / name).mkdir(parents=True)
        rows = [
            {"question": f"{name} question {n}", "answer": [f"a{n}"], "correct_answer": f"a{n}"}
            for n in range(24)
        ]
        text = json.dumps(rows) if name == "sciq" else "\n".join(map(json.dumps, rows))
        (root / name / file).write_text(text)
    return root


def test_real_questions_are_filtered_through_an_endpoint(paper, tmp_path: Path) -> None:
    with standing_in() as server:
        made = paper(
            *("stream", "real-qa", "--data-root", sources(tmp_path / "sources")),
            *("--sources", "nq_open,sciq", "--endpoint", server.url),
            *("--out", tmp_path / "stream", "--tasks", 1, "--items", 4),
        )
    assert made.status == 0, made.err
    stream = load_stream(tmp_path / "stream")
    assert stream.about["model"] == "first"
    counts = Counter(item.details["dataset"] for task in stream.tasks for item in task.items)
    assert counts == {"nq_open": 2, "sciq": 2}


def test_real_qa_killed_and_called_again_is_the_same_to_the_byte(
    paper, tmp_path: Path, backbone_directory: Path
) -> None:
    build = ["stream", "real-qa", "--data-root", sources(tmp_path / "sources"), "--backbone",
             backbone_directory, "--tasks", 2, "--items", 10, "--sources", "nq_open,sciq",
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
    assert contents_of(killed) == contents_of(whole)
    assert len(contents_of(whole)) == 2 * 3 + 1 + 3  # tasks, manifest, verdicts and their settings
