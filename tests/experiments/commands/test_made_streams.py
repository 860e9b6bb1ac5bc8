"""Streams made by one command, one of them learned by the next: the whole way, on real parts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from holdfast.results import RunRecord
from holdfast.streams import load_stream
from tests.serving.real_endpoint import MODEL

# The demo's model and method, for seconds instead of minutes.
BRIEF = [
    "method=replay_merge",
    "optim.epochs=6",
    "sampling.samples=8",
    "sampling.max_new_tokens=24",
]


def learned(holdfast, stream: Path, out: Path) -> RunRecord:
    done = holdfast("run", "demo", f"stream.name={stream}", *BRIEF, "--out", out)
    assert done.status == 0, done.err
    record = RunRecord.open(out)
    assert record.horizon == len(load_stream(stream).tasks)
    return record


def test_the_offline_stream_is_learned(paper, holdfast, tmp_path: Path) -> None:
    stream = tmp_path / "stream"
    made = paper("stream", "llm-qa", "--offline", "--out", stream, "--tasks", 2, "--items", 8)
    assert made.status == 0, made.err
    assert json.loads((stream / "manifest.json").read_text())["grammar"] is True
    record = learned(holdfast, stream, tmp_path / "run")
    assert record.matrix[2, 2] > record.matrix[0, 1]  # a question of the new task, before and after


def test_a_stream_is_written_through_a_real_endpoint(paper, tmp_path: Path, endpoint: str) -> None:
    stream = tmp_path / "stream"
    ask = ["stream", "llm-qa", "--endpoint", endpoint, "--out", stream, "--tasks", 3, "--items", 8]
    short = paper(*ask, "--budget", 2)
    assert short.status == 2
    assert "short" in short.err and short.err.count("\n") <= 2
    replies = (stream / "replies.jsonl").read_bytes()
    made = paper(*ask)
    assert made.status == 0, made.err
    assert (stream / "replies.jsonl").read_bytes().startswith(replies)  # nothing is thrown away
    manifest = json.loads((stream / "manifest.json").read_text())
    assert (manifest["writer"], manifest["grammar"]) == (MODEL, False)
    loaded = load_stream(stream)
    assert [len(task.items) for task in loaded.tasks] == [8, 8, 8]
    for item in (item for task in loaded.tasks for item in task.items):
        assert str(item.details["entity"]).casefold() in item.question.casefold()
    again = paper(*ask)
    assert again.status == 0
    assert again.out == made.out


def test_real_questions_are_filtered_by_the_embedded_model(
    paper, tmp_path: Path, real_data: Path
) -> None:
    stream = tmp_path / "stream"
    sources = "arc_easy,squad"
    ask = ["stream", "real-qa", "--data-root", real_data, "--sources", sources, "--out", stream]
    made = paper(*ask, "--tasks", 2, "--items", 8)
    assert made.status == 0, made.err
    items = [item for task in load_stream(stream).tasks for item in task.items]
    assert Counter(item.details["dataset"] for item in items) == {"arc_easy": 8, "squad": 8}
    for source in sources.split(","):
        lines = (stream / "verdicts" / f"{source}.jsonl").read_text().splitlines()
        assert all(len(json.loads(line)["completions"]) == 5 for line in lines)
    assert paper(*ask, "--tasks", 2, "--items", 8).out == made.out


def test_real_questions_can_be_filtered_through_a_real_endpoint(
    paper, tmp_path: Path, endpoint: str
) -> None:
    """Invented records in a published form: what is real here is the protocol."""
    folder = tmp_path / "sources" / "nq_open"
    folder.mkdir(parents=True)
    rows = [{"question": f"who keeps gate {n}", "answer": [f"keeper {n}"]} for n in range(3)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "NQ-open.dev.jsonl").write_text(text)
    made = paper(
        *("stream", "real-qa", "--data-root", tmp_path / "sources", "--sources", "nq_open"),
        *("--endpoint", endpoint, "--out", tmp_path / "stream", "--tasks", 1, "--items", 2),
    )
    assert made.status == 0, made.err
    stream = load_stream(tmp_path / "stream")
    assert stream.about["model"] == MODEL
    assert sum(len(task.items) for task in stream.tasks) == 2
