"""Streams that are built over several calls: what is refused, what is kept, and a kill."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from experiments.paper.commands import llm_qa
from holdfast.streams import load_stream
from tests.forked import Forked
from tests.serving.stand_in import choices, standing_in
from tests.trajectory.outcome import contents_of


def test_inspect_reads_the_folder_of_a_source(paper, tmp_path: Path) -> None:
    folder = tmp_path / "nq_open"
    folder.mkdir()
    row = {"question": "Who keeps Orl?", "answer": ["Ida"]}
    (folder / "NQ-open.train.jsonl").write_text(json.dumps(row) + "\n")
    inspected = paper("stream", "inspect", folder, "--source", "nq_open")
    assert inspected.status == 0, inspected.err
    assert "source       nq_open, 1 records in 1 files" in inspected.out
    refused = paper("stream", "inspect", folder, "--source", "squad")
    assert refused.status == 2
    assert refused.err.startswith(f"holdfast: {folder}: holds no published files of squad")
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "no", "--source", "sqad"], 'unknown source "sqad"; did you mean squad?'),
        (["real-qa", "--out", "x", "--tasks", "0"], "stream real-qa: tasks = 0: "),
        (["real-qa", "--out", "x.jsonl"], "x.jsonl: give a directory, and --layout jsonl"),
        (["llm-qa", "--offline", "--out", "x.csv"], "x.csv: --layout released writes a directory"),
        (["real-qa", "--out", "x", "--sources", "sqad"], 'unknown source "sqad"; did you mean'),
        (
            ["real-qa", "--out", "x", "--sources", "squad", "--data-root", "."],
            ".: holds no published files of squad (in a folder of that name); put them there",
        ),
        (
            ["llm-qa", "--out", "x", "--offline", "--tasks", "101"],
            "llm_qa: tasks = 101, but there are 100 topics",
        ),
        (
            ["llm-qa", "--out", "x", "--offline", "--model", "m"],
            "--offline and --model exclude each other; give one of them",
        ),
    ],
)
def test_mistakes_are_one_line(
    paper, tmp_path: Path, monkeypatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = paper("stream", *arguments)
    assert refused.status == 2
    assert refused.err.startswith(f"holdfast: {message}")
    assert refused.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [["bogus"], ["llm-qa"]])
def test_a_usage_error_is_one_line_with_the_command_that_explains(paper, verb: list[str]) -> None:
    refused = paper("stream", *verb)
    assert refused.status == 2
    assert refused.err.startswith("python -m experiments.paper stream")
    assert refused.err.endswith(" --help explains)\n")
    assert refused.err.count("\n") == 1


def test_a_stream_from_elsewhere_is_refused_before_any_work(
    paper, holdfast, tmp_path: Path
) -> None:
    out = tmp_path / "s"
    holdfast("stream", "symbol-qa", "--out", out, "--tasks", 2, "--items", 2)
    before = sorted(path.name for path in out.iterdir())
    for verb in (["llm-qa", "--offline"], ["real-qa", "--data-root", tmp_path]):
        refused = paper("stream", *verb, "--out", out)
        assert refused.status == 2
        assert "holds a stream that was not built here; choose another directory" in refused.err
    assert sorted(path.name for path in out.iterdir()) == before


def test_moved_before_the_stream_is_written_nothing_is_made_where_it_was(
    paper, tmp_path: Path, monkeypatch
) -> None:
    out, moved = tmp_path / "stream", tmp_path / "moved"
    monkeypatch.setattr(llm_qa, "_print_rejected", lambda _: out.rename(moved))
    refused = paper("stream", "llm-qa", "--offline", "--tasks", "1", "--items", "5", "--out", out)
    assert refused.status == 2
    assert f"holdfast: {out}: was moved or removed meanwhile" in refused.err
    assert not out.exists() and (moved / "replies.jsonl").exists()


def test_another_stream_of_the_same_records_does_not_replace_the_first(
    paper, tmp_path: Path
) -> None:
    out = tmp_path / "s"
    make = ["stream", "llm-qa", "--offline", "--out", out, "--tasks", 3, "--items", 4]
    first = paper(*make)
    assert first.status == 0, first.err
    assert paper(*make).out == first.out
    refused = paper(*make, "--order-seed", 5)
    assert refused.status == 2
    assert "nothing is lost" in refused.err and "keep replies.jsonl" in refused.err
    assert load_stream(out).fingerprint in first.out


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


def test_the_model_of_the_novelty_filter_is_recorded_with_its_fingerprint(
    paper, tmp_path: Path, backbone_directory: Path
) -> None:
    """So another model under the same name cannot go on with the verdicts of the first."""
    make = ["stream", "llm-qa", "--offline", "--tasks", 1, "--items", 2, "--out", tmp_path / "s"]
    made = paper(*make, "--novel-to", backbone_directory)
    assert made.status == 0, made.err
    settings = json.loads((tmp_path / "s" / "settings.json").read_text())
    assert settings["novel_to"].startswith(f"{backbone_directory} sha256:")


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
