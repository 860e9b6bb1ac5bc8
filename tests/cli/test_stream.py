"""`holdfast stream`: files that a run takes, in every format, and what is wrong in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.streams import Item, Stream, Task, load_stream, read_stream, symbol_qa, write_released
from tests.cli.conftest import refused


@pytest.mark.parametrize(
    ("name", "layout", "place"),
    [
        ("s", "released", "."),
        ("s", "jsonl", "stream.jsonl"),
        ("s", "datasets", "dataset"),
        ("s.jsonl", "released", "."),
    ],
)
def test_symbol_qa_in_every_layout_is_one_stream(
    holdfast, tmp_path: Path, name: str, layout: str, place: str
) -> None:
    """A format that loses that answers need their exact case warns."""
    expected = symbol_qa(3, 5).fingerprint
    out = tmp_path / name
    size = ("--tasks", 3, "--items", 5)
    made = holdfast("stream", "symbol-qa", "--out", out, *size, "--layout", layout)
    assert made.status == 0, made.err
    lines = ["symbol_qa: 3 tasks, 15 items", f"fingerprint {expected}", str(out / place)]
    assert made.out.splitlines() == lines
    assert load_stream(out).fingerprint == expected
    keeps_case = (name, layout) == ("s", "released")
    assert ("evaluation.match=exact" in made.err) != keeps_case
    assert read_stream(out / place).exact_case == keeps_case
    back = tmp_path / "back"
    assert holdfast("stream", "convert", out / place, back).status == 0
    assert load_stream(back).fingerprint == expected


def test_a_generated_stream_is_converted_by_its_name(holdfast, tmp_path: Path) -> None:
    made = holdfast("stream", "convert", "symbol_qa", tmp_path / "s.csv", "--items-per-task", 2)
    assert made.status == 0, made.err
    assert load_stream(tmp_path / "s.csv").tasks == symbol_qa(100, 2).tasks


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
    refused(holdfast("stream", "convert", lines, table), "is there already")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["b", "--to", "table"], "a table's name ends with one of .csv"),
        (["b.csv", "--to", "datasets"], "--to datasets writes a directory"),
        (["b", "--to", "jsonl"], "a file of JSON lines ends with .jsonl"),
        (["b.csv"], "its first line must name the columns"),
        (["b.csv", "--question-column", "x"], 'has no "x"; it has q, a'),
    ],
)
def test_a_table_needs_a_name_of_one_and_columns(
    holdfast, tmp_path: Path, monkeypatch, words, message
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("q,a\nWho?,Ann\n")
    refused(holdfast("stream", "convert", "a.csv", *words), message)


def test_inspect_counts_what_is_there(holdfast, tmp_path: Path) -> None:
    first = {"task": "one", "question": "Who keeps Orl?", "answer": "Ida", "aliases": ["Ida Venn"]}
    rows = [
        first,
        {"task": "one", "question": "Who built Orl?", "answer": "Ida"},
        {"task": "two", "question": "What is Orl?", "answer": "a lamp", "details": {"topic": "x"}},
    ]
    path = tmp_path / "facts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = holdfast("stream", "inspect", path, "--examples", 1)
    assert outcome.status == 0, outcome.err
    lines = {line.split()[0]: line[13:] for line in outcome.out.splitlines()}
    assert lines["stream"] == "facts, 2 tasks of 1 to 2 items, 3 in all"
    assert lines["fingerprint"] == load_stream(path).fingerprint
    assert lines["answers"] == "2 different; 2 items share theirs with others"
    assert lines["aliases"] == "1 items accept other answers too"
    assert lines["repeats"] == "none"
    assert lines["topic"] == "x 1"
    assert lines["tokens"].endswith("none above 384")
    assert "Who keeps Orl? -> Ida | Ida Venn" in outcome.out
    # Nothing is printed before the tokenizer is there.
    missing = holdfast("stream", "inspect", path, "--backbone", tmp_path / "nowhere")
    refused(missing, "nowhere")
    assert missing.out == ""


def test_inspect_shows_contradictions_and_who_wrote_them(holdfast, tmp_path: Path) -> None:
    about = {"writer": "model", "model": "orl-7", "seed": 3}
    write_released(Stream((Task("one", (Item("q", "a"),)),), "s", about=about), tmp_path / "own")
    output = holdfast("stream", "inspect", tmp_path / "own").out
    lines = {line.split()[0]: line[13:] for line in output.splitlines()}
    assert (lines["writer"], lines["model"], lines["seed"]) == ("model", "orl-7", "3")
    published = tmp_path / "s" / "task_0"
    published.mkdir(parents=True)
    items = [{"query": "Who?", "answer": name} for name in ("Ida", "Orl")]
    (published / "train_items.json").write_text(json.dumps(items))
    (tmp_path / "s" / "manifest.json").write_text('{"n_tasks": 1}')
    output = holdfast("stream", "inspect", tmp_path / "s").out
    assert "repeats      1 questions stand more than once" in output
    assert "Who? -> Ida | Orl" in output
    out = tmp_path / "s.jsonl"
    refused(holdfast("stream", "convert", tmp_path / "s", out), "two answers for one question")
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "nowhere"], 'unknown stream "nowhere", and no file or directory'),
        (["convert", "nowhere.jsonl", "x"], "nowhere.jsonl: no such file; give the path of a"),
        (["symbol-qa", "--out", "x.jsonl", "--layout", "datasets"], "writes a directory; name one"),
    ],
)
def test_mistakes_are_one_line(
    holdfast, tmp_path: Path, monkeypatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(holdfast("stream", *arguments), message)
    assert list(tmp_path.iterdir()) == []


def test_naming_a_stored_stream_takes_all_of_it(holdfast, tmp_path: Path) -> None:
    """The recipe's 10 tasks of 32 items are those of its own stream."""
    holdfast("stream", "symbol-qa", "--out", tmp_path / "s", "--tasks", 12, "--items", 40)
    plan = holdfast("run", "demo", f"stream.name={tmp_path / 's'}", "--dry-run")
    assert "# 12 tasks of symbol_qa" in plan.out
    assert symbol_qa(12, 40).fingerprint in plan.out
    some = holdfast("run", "demo", f"stream.name={tmp_path / 's'}", "stream.tasks=2", "--dry-run")
    assert "# 2 tasks of symbol_qa" in some.out
