"""`holdfast learn` and `holdfast ask`, and the commands that take a memory for a trajectory."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest

from holdfast import Memory, Trajectory
from holdfast.cli.printing import escaped
from holdfast.results import read_capability
from tests.memory.memories import MONDAY, config
from tests.memory.test_memory import stream_of
from tests.trajectory.outcome import contents_of


def write(path, facts):
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer in facts]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def settings(backbone_directory):
    """A new memory that takes a fraction of a second."""
    return [
        f"backbone.name={backbone_directory}",
        *("method=vanilla", "lora.rank=2", "optim.epochs=1", "optim.min_steps=2"),
        *("evaluation.max_new_tokens=8", "sampling.samples=4"),
    ]


@pytest.fixture(scope="session")
def taught(tmp_path_factory):
    """A memory on the embedded model that answers."""
    place = tmp_path_factory.mktemp("taught") / "m"
    optim = {"lr": 4e-3, "min_steps": 25, "epochs": 1}
    embedded = config("embedded", lora={"rank": 16, "alpha": 32, "dropout": 0.0}, optim=optim,
                      template={"append_eos": True}, evaluation={"max_new_tokens": 12})  # fmt: skip
    learned = Memory(place, embedded).learn(MONDAY)
    assert not learned.missed
    return place


def test_what_learn_prints(holdfast, settings, tmp_path):
    place, first = tmp_path / "m", write(tmp_path / "first.jsonl", MONDAY)
    made = holdfast("learn", place, first, *settings)
    assert made.status == 0, made.err
    assert made.err.splitlines()[0].startswith("settings: recipe memory_paper")
    assert "m: task 1 of 1" in made.err
    lines = made.out.splitlines()
    assert lines[0] == "batch 1: 0 of 3 facts recalled"
    assert lines[1] == "not recalled: " + ", ".join(f'"{question}"' for question, _ in MONDAY)
    assert lines[2:] == ["all so far: 0 of 3 facts recalled", str(place)]

    before = contents_of(place)
    again = holdfast("learn", place, first, *settings)
    assert (again.status, again.err) == (0, "")
    assert "learned before, not again: " in again.out
    assert "nothing new; 3 facts are learned already" in again.out
    assert holdfast("learn", place).status == 0
    assert contents_of(place) == before

    second = write(tmp_path / "second.jsonl", [(MONDAY[0][0], "Orsa"), ("Who?", "Lum")])
    corrected = holdfast("learn", place, second)
    assert corrected.status == 0, corrected.err
    assert f'corrected: "{MONDAY[0][0]}" is "Orsa", was "Fenwick"' in corrected.out
    assert "all so far: 0 of 4 facts recalled" in corrected.out


def test_mistakes_take_one_line(holdfast, settings, backbone_directory, tmp_path):
    facts = write(tmp_path / "facts.jsonl", MONDAY)
    place = tmp_path / "m"
    assert holdfast("learn", place, facts, *settings).status == 0
    Trajectory(config(backbone_directory), tmp_path / "run", stream=stream_of(MONDAY)).advance()
    cases = {
        ("learn", place, facts, "lora.rank=3"): "lora.rank: 2 -> 3",
        ("learn", place, facts, "--model", "embedded"): "backbone: ",
        ("learn", place, facts, "--recipe", "memory"): "lora.rank: 2 -> 64",
        ("learn", place, facts, "stream.tasks=2"): "leave stream.* out",
        ("learn", place, facts, "optim.lrr=1"): "did you mean optim.lr",
        ("learn", place, "fact.jsonl"): "fact.jsonl: no such file",
        ("learn", tmp_path / "new"): "no such memory; holdfast learn",
        ("learn", tmp_path / "run", facts): "is a trajectory but no memory",
        ("learn", tmp_path, facts): "but no trajectory (config.json); choose an empty",
        ("learn", facts, facts): "is a file, or below one",
        ("ask", tmp_path / "new", "Who?"): "no such memory; holdfast learn",
        ("ask", tmp_path / "run", "Who?"): "is a trajectory but no memory",
        ("ask", place, " "): '"question" is empty',
    }
    before = contents_of(place)
    for arguments, words in cases.items():
        outcome = holdfast(*arguments)
        assert (outcome.status, outcome.out) == (2, ""), arguments
        assert words in outcome.err, arguments
        assert outcome.err.count("\n") == 1, arguments
    assert contents_of(place) == before
    assert not (tmp_path / "new").exists()


def test_a_fact_on_the_command_line(holdfast, settings, tmp_path):
    place = tmp_path / "m"
    made = holdfast("learn", place, "Who rings the bell?", "Ada = Ann", *settings)
    assert made.status == 0, made.err
    (fact,) = Memory(place).facts
    assert (fact.question, fact.answer) == ("Who rings the bell?", "Ada = Ann")
    assert holdfast("learn", place, "the code", "4711").status == 0
    assert [fact.answer for fact in Memory(place).facts] == ["Ada = Ann", "4711"]
    facts = write(tmp_path / "facts.jsonl", MONDAY)
    before = contents_of(place)
    for arguments, words in {
        ("Who rings?",): "'Who rings?' is no file; to teach it as a question, put its answer",
        ("Who", "rings", "the bell?"): "'the bell?': one question and one answer are expected",
        (facts, "Ada"): f"'Ada' is no setting KEY=VALUE, and {facts} is no question",
        ("Who?", " "): '"answer" is empty',
    }.items():
        refused = holdfast("learn", place, *arguments)
        assert (refused.status, refused.out) == (2, ""), arguments
        assert words in refused.err and refused.err.count("\n") == 1, refused.err
    assert contents_of(place) == before


def test_columns_of_any_name(holdfast, settings, tmp_path):
    table = tmp_path / "facts.csv"
    table.write_text("Frage,Antwort,Thema\nWas?,Roggen,Korn\n")
    columns = ["--question-column", "Frage", "--answer-column", "Antwort"]
    assert holdfast("learn", tmp_path / "m", table, *columns, *settings).status == 0
    (fact,) = Memory(tmp_path / "m").facts
    assert (fact.question, fact.answer, fact.details) == ("Was?", "Roggen", {"Thema": "Korn"})


def test_every_bad_line_is_told_and_nothing_is_changed(holdfast, settings, tmp_path):
    place = tmp_path / "m"
    assert holdfast("learn", place, write(tmp_path / "a.jsonl", MONDAY), *settings).status == 0
    before = contents_of(place)
    (tmp_path / "b.jsonl").write_text('{"question": "Who?", "answer": "Ann"}\n{\n{"answer": 3}\n')
    refused = holdfast("learn", place, tmp_path / "b.jsonl")
    assert refused.status == 2
    lines = refused.err.splitlines()
    assert lines[0].endswith("b.jsonl: 2 of 3 entries are wrong; nothing was taken")
    assert lines[1].startswith("  line 2: is no JSON") and lines[2].startswith("  line 3: ")
    assert contents_of(place) == before


def test_an_answer_is_all_that_ask_prints(holdfast, taught):
    before = contents_of(taught)
    for question, answer in MONDAY:
        assert holdfast("ask", taught, question) == (0, f"{answer}\n", "")
    unquoted = holdfast("ask", taught, *MONDAY[0][0].split())
    assert unquoted.out == f"{MONDAY[0][1]}\n"
    assert contents_of(taught) == before


def test_without_an_answer_it_says_so(holdfast, settings, tmp_path):
    facts = write(tmp_path / "facts.jsonl", MONDAY)
    assert holdfast("learn", tmp_path / "m", facts, *settings).status == 0
    outcome = holdfast("ask", tmp_path / "m", "Who?")
    assert outcome.status == 0
    assert outcome.out.strip() == escaped(Memory(tmp_path / "m").reply("Who?").text).strip()
    assert outcome.err == "holdfast: it gave no answer; this is what it wrote\n"


def test_lines_of_standard_input_are_answered_one_by_one(holdfast, taught, monkeypatch):
    questions = [MONDAY[1][0], "", "why " * 400, MONDAY[0][0]]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{q}\n" for q in questions)))
    outcome = holdfast("ask", taught)
    assert outcome.status == 0
    assert outcome.out.split("\n") == [MONDAY[1][1], "", "", MONDAY[0][1], ""]
    assert "ask a shorter one" in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_line_that_is_no_text_spoils_no_other(holdfast, taught, monkeypatch):
    content = b"\xef\xbb\xbf" + MONDAY[1][0].encode() + b"\r\n\xff\xfe?\n" + MONDAY[0][0].encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    outcome = holdfast("ask", taught)
    assert (outcome.status, outcome.out) == (0, f"{MONDAY[1][1]}\n\n{MONDAY[0][1]}\n")
    assert "is no valid Unicode" in outcome.err and outcome.err.count("\n") == 1
    monkeypatch.setattr(sys, "stdin", None)
    assert holdfast("ask", taught) == (0, "", "")


@pytest.mark.parametrize("terminal", [True, False])
def test_who_types_facts_is_told_how_to_end(terminal, holdfast, settings, tmp_path, monkeypatch):
    content = write(tmp_path / "facts.jsonl", MONDAY[:1]).read_bytes()
    typed = SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: terminal)
    monkeypatch.setattr(sys, "stdin", typed)
    outcome = holdfast("learn", tmp_path / "m", "-", *settings)
    assert outcome.status == 0
    assert ("Ctrl-D" in outcome.err) == terminal


def test_what_learn_prints_stays_on_its_lines(holdfast, settings, tmp_path):
    for name, answer in (("first", "long " * 50), ("second", "an\nother")):
        facts = write(tmp_path / f"{name}.jsonl", [("Who\nis it?", answer)])
        outcome = holdfast("learn", tmp_path / "m", facts, *settings)
    lines = outcome.out.splitlines()
    assert lines[1] == 'not recalled: "Who is it?"'
    assert lines[2].startswith('corrected: "Who is it?" is "an other", was "long long ')
    assert len(lines) == 5 and len(lines[2]) < 300


def test_report_and_capability_take_a_memory(holdfast, taught, tmp_path):
    page = holdfast("report", taught, "--out", tmp_path / "report.html")
    assert page.status == 0, page.err
    assert "vanilla" in (tmp_path / "report.html").read_text()
    scores = holdfast("capability", taught, "--tasks", "text", "--limit", 1)
    assert scores.status == 0, scores.err
    assert [row.after_task for row in read_capability(taught)] == [1]
