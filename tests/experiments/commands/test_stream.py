"""Streams that are built over several calls: what is refused, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.paper.commands import llm_qa
from holdfast.streams import load_stream


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
        (["real-qa", "--out", "x", "--sources", "sqad"], 'unknown source "sqad"; did you mean'),
        (
            ["real-qa", "--out", "x", "--sources", "squad", "--data-root", "."],
            ".: holds no published files of squad (in a folder of that name); put them there",
        ),
        (
            ["llm-qa", "--out", "x", "--offline", "--tasks", "101"],
            "llm_qa: tasks = 101, but there are 100 topics",
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
