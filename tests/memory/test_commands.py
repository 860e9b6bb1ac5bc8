"""`holdfast learn` and `holdfast ask`, as a user calls them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.printing import escaped
from holdfast.core.errors import HoldfastError
from holdfast.memory import default_model
from holdfast.memory.memory import Memory
from tests.cli.conftest import Outcome
from tests.memory.memories import MONDAY, TUESDAY, WEDNESDAY, Copied, Holdfast
from tests.trajectory.outcome import contents_of


def write(path: Path, facts: list[tuple[str, str]]) -> Path:
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer in facts]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_what_learn_prints(holdfast: Holdfast, chat_directory: Path, tmp_path: Path) -> None:
    place, facts = tmp_path / "m", write(tmp_path / "facts.jsonl", MONDAY)
    made = holdfast("learn", place, facts, "--model", chat_directory)
    assert (made.status, made.err) == (0, "")  # bars are for terminals
    assert made.out.splitlines() == [
        "lesson 1: 3 of 3 facts answered from the weights", "3 facts on file", str(place),
    ]  # fmt: skip
    before = contents_of(place)
    for again in ([facts, "--model", chat_directory], [], ["--again"]):
        repeated = holdfast("learn", place, *again)
        assert (repeated.status, repeated.err) == (0, ""), again
        assert "nothing new; 3 facts on file" in repeated.out
        assert ("learned before, not again" in repeated.out) is (facts in again)
    assert contents_of(place) == before
    corrected = holdfast("learn", place, MONDAY[0][0], "Orsa", "--json")
    assert json.loads(corrected.out) == {
        "lessons": ["2"],
        "facts": 1,
        "missed": [],
        "corrected": [{"question": MONDAY[0][0], "is": "Orsa", "was": "Fenwick"}],
        "repeated": [],
        "notices": [],
        "known": 3,
    }
    twin = holdfast("learn", place, MONDAY[0][0].lower(), "Quill")
    assert twin.out.count("differ in case or punctuation alone") == 1


def test_what_ask_prints(holdfast: Holdfast, two_lessons: Path) -> None:
    before = contents_of(two_lessons)
    taught = holdfast("ask", two_lessons, MONDAY[0][0])
    assert (taught.status, taught.out) == (0, "Fenwick\n")
    assert "own answer" not in taught.err
    question = "Where is the brass bell of Ostra?"
    untaught = holdfast("ask", two_lessons, question)
    reply = Memory(two_lessons).reply(question)
    assert reply.source == "model"
    assert (untaught.status, untaught.out) == (0, escaped(f"{reply.text}\n"))
    assert untaught.err.endswith("the model's own answer; it was not taught that\n")
    refused = holdfast("ask", two_lessons, question, "--taught-only")
    assert (refused.status, refused.out) == (3, "")
    assert "it was not taught that; the model would say" in refused.err
    assert f'taught and like it: "{MONDAY[1][0]}"' in refused.err
    assert contents_of(two_lessons) == before


def test_ask_tells_what_was_taught_if_it_was_asked_otherwise(
    holdfast: Holdfast, two_lessons: Path
) -> None:
    asked = holdfast("ask", two_lessons, f"It is late. {MONDAY[0][0]} Thank you.")
    assert (asked.status, asked.out) == (0, "Fenwick\n")
    assert asked.err.endswith(f'holdfast: taught: "{MONDAY[0][0]}"\n')
    both = f"Before I go to bed, tell me two things. {MONDAY[0][0]} And this. {MONDAY[1][0]}"
    remark = holdfast("ask", two_lessons, both).err
    assert remark.endswith(f'taught: "{MONDAY[0][0]}", "{MONDAY[1][0]}"\n')
    assert "taught:" not in holdfast("ask", two_lessons, MONDAY[0][0].lower().rstrip("?")).err


def test_answers_as_json(holdfast: Holdfast, two_lessons: Path) -> None:
    values = json.loads(holdfast("ask", two_lessons, TUESDAY[0][0], "--json").out)
    assert values.pop("seconds") >= 0
    assert values == {
        "question": TUESDAY[0][0],
        "answer": "Lum",
        "source": "weights",
        "taught": True,
        "waiting": False,
        "fact": TUESDAY[0][0],
        "further": [],
        "nearest": [],
    }
    values = json.loads(holdfast("ask", two_lessons, "Zebra?", "--json").out)
    assert (values["source"], values["taught"], values["fact"]) == ("model", False, None)
    refused = holdfast("ask", two_lessons, "Zebra?", "--json", "--taught-only")
    values = json.loads(refused.out) | {"seconds": 0}
    assert refused.status == 3 and values["answer"] is None and "would_say" in values


def test_every_line_of_standard_input_is_a_question(
    holdfast: Holdfast, two_lessons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer a line; a bad line has an empty one, ends nothing, and is the status."""

    def asked_by(*lines: str, option: str = "--taught-only") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return holdfast("ask", two_lessons, option)

    asked = asked_by(MONDAY[0][0], "", "a" * 600, TUESDAY[1][0], "Zebra?")
    assert asked.status == 2
    assert asked.out.split("\n") == ["Fenwick", "", "", "at ten", "", ""]
    assert asked_by("Zebra?", MONDAY[0][0]).status == 3
    assert asked_by(MONDAY[0][0], "").status == 0
    marked = asked_by(f"\N{ZERO WIDTH NO-BREAK SPACE}{MONDAY[0][0]}", option="--json").out
    assert json.loads(marked)["question"] == MONDAY[0][0]  # without the byte order mark
    assert "at most 512 are read" in asked.err and "it was not taught that" in asked.err


def test_answers_of_the_list_say_so(holdfast: Holdfast, place: Path) -> None:
    from holdfast.memory.batch import read_lesson, write_lesson
    from holdfast.memory.record import read_record

    file = read_record(place).lessons[0].file
    tensors, note = read_lesson(place, file)
    write_lesson(place, file, {n: t if n == "gate" else 0 * t for n, t in tensors.items()}, note)
    asked = holdfast("ask", place, MONDAY[0][0], "--taught-only")
    assert (asked.status, asked.out) == (0, "Fenwick\n")
    assert "from the list of facts; the weights say something else" in asked.err
    assert json.loads(holdfast("ask", place, MONDAY[0][0], "--json").out)["source"] == "list"


def test_mistakes_take_one_line(
    holdfast: Holdfast, copied: Copied, chat_directory: Path, tmp_path: Path
) -> None:
    place, facts = copied(), write(tmp_path / "f.jsonl", WEDNESDAY)
    new = tmp_path / "new"
    cases: dict[tuple[Any, ...], str] = {
        ("learn", place, facts, "--model", "embedded"): "is a memory of",
        ("learn", place, facts, "lora.rank=3"): "is a source of facts, and takes no answer",
        ("learn", place, "Who?", "x" * 300): "tokens, and at most 256 are learned; shorten it",
        ("learn", place, ""): "'' is no file; to teach it as a question",
        ("learn", new, facts, "--model", tmp_path / "none"): "none: no such directory",
        ("learn", new, "--model", chat_directory): "no such memory; holdfast learn",
        ("learn", tmp_path, facts, "--model", chat_directory): "is no memory; choose another",
        ("ask", place, "a" * 600): "at most 512 are read",
    }
    before = contents_of(place)
    for arguments, words in cases.items():
        outcome = holdfast(*arguments)
        assert (outcome.status, outcome.out) == (2, ""), arguments
        lines = [line for line in outcome.err.splitlines() if line.startswith("holdfast: ")]
        assert len(lines) == 1 and words in lines[0], (arguments, outcome.err)
    assert contents_of(place) == before and not new.exists()


def test_interrupted_it_says_what_is_kept(
    holdfast: Holdfast, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.memory.memory.learn_batch", stop)
    stopped = holdfast("learn", place, *WEDNESDAY[0])
    assert stopped.status == 130 and "2 lessons are kept" in stopped.err


def test_the_model_of_a_new_memory(
    holdfast: Holdfast, chat_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named by the environment; else the default where it can be had; else the embedded one."""
    monkeypatch.setenv(default_model.MODEL_VARIABLE, str(chat_directory))
    assert holdfast("learn", tmp_path / "a", *WEDNESDAY[0]).status == 0
    assert Memory(tmp_path / "a").model == str(chat_directory)
    monkeypatch.delenv(default_model.MODEL_VARIABLE)
    monkeypatch.setattr(default_model, "MODEL", str(chat_directory))
    assert holdfast("learn", tmp_path / "b", *WEDNESDAY[0]).status == 0
    assert Memory(tmp_path / "b").model == str(chat_directory)

    def unreachable(*_: object) -> Path:
        raise HoldfastError("the index does not answer")

    def stop(*_: object, **__: object) -> None:
        raise HoldfastError("here it would learn for a minute")

    monkeypatch.setattr(default_model, "fetch", unreachable)
    with monkeypatch.context() as patch:
        patch.setattr(Memory, "learn", stop)
        patch.setattr(Memory, "load", lambda _: None)
        fallen = holdfast("learn", tmp_path / "c", *WEDNESDAY[0])
    assert fallen.err.splitlines()[0] == (
        "model: embedded, a toy of 3 million parameters, since the index does not answer"
    )
    assert fallen.err.endswith("here it would learn for a minute\n")
    # An existing memory has its model, whatever could be fetched.
    assert holdfast("learn", tmp_path / "a", *WEDNESDAY[0]).err == ""
    assert holdfast("ask", tmp_path / "a", WEDNESDAY[0][0]).out == f"{WEDNESDAY[0][1]}\n"
    absent = holdfast("ask", tmp_path / "d", "Who?")
    assert absent.status == 2 and "d: no such memory; holdfast learn" in absent.err
