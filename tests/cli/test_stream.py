"""`holdfast stream`: files that a run takes, in every format, and what is wrong in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.streams import (
    Item,
    Stream,
    Task,
    load_stream,
    read_stream,
    symbol_qa,
    write_released,
)


def test_symbol_qa_in_every_layout_is_one_stream(holdfast, tmp_path: Path) -> None:
    expected = symbol_qa(3, 5).fingerprint
    for layout, place in (("released", "."), ("jsonl", "stream.jsonl"), ("datasets", "dataset")):
        out = tmp_path / layout
        made = holdfast(
            "stream", "symbol-qa", "--out", out, "--tasks", 3, "--items", 5, "--layout", layout
        )
        assert made.status == 0, made.err
        assert made.out.splitlines() == [
            "symbol_qa: 3 tasks, 15 items",
            f"fingerprint {expected}",
            str(out / place) if place != "." else str(out),
        ]
        assert load_stream(out).fingerprint == expected
        assert ("exact case" in made.err) == (layout != "released")


def test_converting_there_and_back_changes_nothing(holdfast, tmp_path: Path) -> None:
    first, lines, rows, last = (tmp_path / name for name in ("a", "b.jsonl", "c", "d"))
    holdfast("stream", "symbol-qa", "--out", first, "--tasks", 2, "--items", 3)
    to_lines = holdfast("stream", "convert", first, lines)
    assert to_lines.status == 0
    assert "evaluation.match=exact" in to_lines.err
    assert holdfast("stream", "convert", lines, rows, "--to", "datasets").status == 0
    assert holdfast("stream", "convert", rows, last).status == 0
    for task in ("task_0", "task_1"):
        for path in (first / task).iterdir():
            assert path.read_bytes() == (last / task / path.name).read_bytes()


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "parquet", "xlsx"])
def test_converting_to_a_table_and_back(holdfast, tmp_path: Path, suffix: str) -> None:
    lines, table, back = tmp_path / "a.jsonl", tmp_path / f"b.{suffix}", tmp_path / "c.jsonl"
    lines.write_text(
        '{"question": "Who?", "answer": "Ann", "aliases": ["A", "B"], "task": "x", "seen": [1]}\n'
        '{"question": "Why, then?", "answer": "Rain", "task": "y"}\n'
    )
    assert holdfast("stream", "convert", lines, table).status == 0
    assert table.is_file()
    assert holdfast("stream", "convert", table, back).status == 0
    assert read_stream(back).tasks == read_stream(lines).tasks
    assert read_stream(back).tasks[0].items[0].details == {"seen": [1]}
    again = holdfast("stream", "convert", lines, table)
    assert again.status == 2 and "is there already" in again.err


def test_a_table_needs_a_name_of_one(holdfast, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("q,a\nWho?,Ann\n")
    columns = ["--question-column", "q", "--answer-column", "a"]
    for arguments, words in {
        ("a.csv", "b", "--to", "table", *columns): "a table's name ends with one of .csv",
        ("a.csv", "b.csv", "--to", "datasets", *columns): "--to datasets writes a directory",
        ("a.csv", "b.csv"): "its first line must name the columns",
        ("a.csv", "b.csv", "--question-column", "x"): 'has no "x"; it has q, a',
    }.items():
        source, out, *rest = arguments
        refused = holdfast("stream", "convert", tmp_path / source, tmp_path / out, *rest)
        assert refused.status == 2 and words in refused.err, refused.err
    refused = holdfast("stream", "symbol-qa", "--out", tmp_path / "s", "--layout", "table")
    assert refused.status == 2 and "holdfast stream convert" in refused.err


def test_inspect_counts_what_is_there(holdfast, tmp_path: Path) -> None:
    rows = [
        {"task": "one", "question": "Who keeps Orl?", "answer": "Ida", "aliases": ["Ida Venn"]},
        {"task": "one", "question": "Who built Orl?", "answer": "Ida"},
        {
            "task": "two",
            "question": "What is Orl?",
            "answer": "a {lamp}",
            "details": {"topic": "x"},
        },
    ]
    path = tmp_path / "facts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = holdfast("stream", "inspect", path, "--examples", 1)
    assert shown.status == 0, shown.err
    lines = {line.split()[0]: line[13:] for line in shown.out.splitlines()}
    assert lines["stream"] == "facts, 2 tasks of 1 to 2 items, 3 in all"
    assert lines["fingerprint"] == load_stream(path).fingerprint
    assert lines["answers"] == "2 different; 2 items share theirs with others"
    assert lines["aliases"] == "1 items accept other answers too"
    assert lines["repeats"] == "none"
    assert lines["topic"] == "x 1"
    assert lines["tokens"].endswith("none above 384")
    assert "Who keeps Orl? -> Ida | Ida Venn" in shown.out


def test_inspect_shows_contradictions_of_a_published_stream(holdfast, tmp_path: Path) -> None:
    folder = tmp_path / "s" / "task_0"
    folder.mkdir(parents=True)
    items = [{"query": "Who?", "answer": name} for name in ("Ida", "Orl")]
    (folder / "train_items.json").write_text(json.dumps(items))
    (tmp_path / "s" / "manifest.json").write_text('{"n_tasks": 1}')
    shown = holdfast("stream", "inspect", tmp_path / "s")
    assert "repeats      1 questions stand more than once" in shown.out
    assert "Who? -> Ida | Orl" in shown.out
    refused = holdfast("stream", "convert", tmp_path / "s", tmp_path / "s.jsonl")
    assert refused.status == 2
    assert "two answers for one question" in refused.err
    assert not (tmp_path / "s.jsonl").exists()


def test_inspect_tells_who_wrote_and_who_filtered(holdfast, tmp_path: Path) -> None:
    about = {"writer": "model", "model": "orl-7", "seed": 3}
    stream = Stream((Task("one", (Item("q", "a"),)),), "s", about=about)
    write_released(stream, tmp_path / "s")
    shown = holdfast("stream", "inspect", tmp_path / "s").out
    lines = {line.split()[0]: line[13:] for line in shown.splitlines()}
    assert (lines["writer"], lines["model"], lines["seed"]) == ("model", "orl-7", "3")


def test_inspect_prints_nothing_before_it_has_the_tokenizer(holdfast, tmp_path: Path) -> None:
    holdfast("stream", "symbol-qa", "--out", tmp_path / "s", "--tasks", 1, "--items", 2)
    shown = holdfast("stream", "inspect", tmp_path / "s", "--backbone", tmp_path / "nowhere")
    assert (shown.status, shown.out) == (2, "")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "a" * 300], f'stream "{"a" * 57}..." cannot be read (File name too long)'),
        (
            ["inspect", "nowhere"],
            'unknown stream "nowhere", and no file or directory',
        ),
        (
            ["inspect", "file", "--source", "squad"],
            "stream inspect --source is part of the paper's study, which is not in the package; in "
            "a clone of the repository run: python -m experiments.paper stream inspect --source",
        ),
        (
            ["llm-qa", "--out", "x", "--offline"],
            "stream llm-qa is part of the paper's study, which is not in the package; in a clone "
            "of the repository run: python -m experiments.paper stream llm-qa ...",
        ),
        (["real-qa", "--data-root", "x"], "stream real-qa is part of the paper's study"),
        (["convert", "nowhere.jsonl", "x"], "nowhere.jsonl: no such file; give the path of a"),
        (["symbol-qa", "--out", "x", "--tasks", "0"], "symbol_qa: tasks = 0; use 1 or more"),
    ],
)
def test_mistakes_are_one_line(
    holdfast, tmp_path: Path, monkeypatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = holdfast("stream", *arguments)
    assert refused.status == 2
    assert refused.err.startswith(f"holdfast: {message}")
    assert refused.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_naming_a_stored_stream_takes_all_of_it(holdfast, tmp_path: Path) -> None:
    """The recipe's 10 tasks of 32 items are those of its own stream."""
    holdfast("stream", "symbol-qa", "--out", tmp_path / "s", "--tasks", 12, "--items", 40)
    plan = holdfast("run", "demo", f"stream.name={tmp_path / 's'}", "--dry-run")
    assert "# 12 tasks of symbol_qa" in plan.out
    assert symbol_qa(12, 40).fingerprint in plan.out
    some = holdfast("run", "demo", f"stream.name={tmp_path / 's'}", "stream.tasks=2", "--dry-run")
    assert "# 2 tasks of symbol_qa" in some.out
