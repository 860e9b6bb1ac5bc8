"""What `learn` is told, and a conversation with a memory on a chat model."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from holdfast.cli.ask import respond
from holdfast.cli.learn import source_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import lock_directory
from holdfast.memory import detached
from holdfast.memory.memory import Memory
from tests.forked import Forked
from tests.serving.chat_memories import FACTS, MORE, UNTAUGHT, copied, when


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["What is the token?", "TOKEN=abc"], ("What is the token?", "TOKEN=abc")),
        (["E=mc2", "a formula"], ("E=mc2", "a formula")),
        (["x=1", "--", "y=2"], ("x=1", "y=2")),
        (["--", "--existing", "-v"], ("--existing", "-v")),
        (["--", "facts.csv", "a table"], ("facts.csv", "a table")),
        (["--", "-", "a dash"], ("-", "a dash")),
    ],
)
def test_in_every_position_of_a_fact_text_is_text(arguments, fact):
    texts = len(arguments) - arguments.index("--") - 1 if "--" in arguments else 0
    assert source_of([text for text in arguments if text != "--"], texts) == [fact]


def test_a_source_is_a_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "who=me").write_text("")
    assert source_of([]) is None
    for source in ("-", "facts.jsonl", "symbol_qa", "who=me", "not here.jsonl"):
        assert source_of([source]) == source  # what cannot be read is refused by its reader


@pytest.mark.parametrize(
    ("arguments", "texts", "words"),
    [
        (["Who rings?"], 0, "'Who rings.' is no file; to teach it as a question, put its answer"),
        (["Who"], 1, "'Who' is no file; to teach it as a question, put its answer"),
        (["Who", "rings", "the bell?"], 0, "'the bell.': one question and one answer are expected"),
        (["-", "Ann"], 0, "'Ann': - is a source of facts, and takes no answer"),
        (["facts.csv", "seed=4"], 0, "facts.csv: no such file"),
    ],
)
def test_what_is_neither_is_refused(arguments, texts, words):
    with pytest.raises(HoldfastError, match=words):
        source_of(arguments, texts)


def test_answers_are_marked_unless_the_weights_give_them(chat_memory: Path) -> None:
    memory = Memory(chat_memory)
    assert respond(memory, FACTS[0][0]) == FACTS[0][1]
    answer = respond(memory, UNTAUGHT)
    assert answer == f"{memory.ask(UNTAUGHT)}\n  (the model's own answer; it was not taught that)"
    listed = respond(memory, "who keeps the lighthouse of velm")
    assert listed.startswith(FACTS[0][1])
    refused = respond(memory, UNTAUGHT, taught_only=True)
    assert refused.startswith("it was not taught that; the model would say")
    assert respond(memory, FACTS[0][0], taught_only=True) == FACTS[0][1]
    assert "marked" in respond(memory, "/help") and "/teach" in respond(memory, "/help")


@pytest.mark.parametrize(
    ("fact", "question", "answer"),
    [
        ('Who said "Why?" first? Ada', 'Who said "Why?" first?', "Ada"),
        ("Who asked Why? at first? Ada", "Who asked Why? at first?", "Ada"),
        ("What did he say? Really?", "What did he say?", "Really?"),
        ("Who is it?Ada = Bo", "Who is it?", "Ada = Bo"),
        (" The motto =  Why? ", "The motto", "Why?"),
        ("Qui ? Ada", "Qui?", "Ada"),
    ],
)
def test_where_a_question_ends(
    fact: str, question: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory("nowhere")
    taught: list[object] = []
    monkeypatch.setattr(memory, "learn", lambda facts, **_: taught.append(facts))
    monkeypatch.setattr("holdfast.memory.telling.outcome_lines", lambda _: [])
    respond(memory, f"/teach {fact}")
    assert taught == [[(question, answer)]]


def test_teaching_and_what_is_missed(
    chat_memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(command: list[str], *, env: dict[str, str], stdout: IO[bytes], **_: object) -> Forked:
        return Forked(command[4:], environment=env, stdout=stdout, stderr=stdout)

    monkeypatch.setattr(detached, "subprocess", SimpleNamespace(Popen=begun, DEVNULL=None))
    memory = Memory(copied(chat_memory, tmp_path / "m"))
    assert respond(memory, "/forgotten") == "nothing; all 3 facts are answered from the weights"
    question, answer = MORE[0]
    reply = respond(memory, f"/teach {question} {answer}")
    assert "lesson 2: 1 of 1 fact answered from the weights" in reply
    assert respond(memory, question) == answer
    question, answer = MORE[1]
    with lock_directory(memory.directory):  # as a lesson of another process does
        reply = respond(memory, f"/teach {question} {answer}")
        assert reply == "another process learns here; this fact is on file and learned next"
    when(memory.directory, lambda states: states[2].state == "learned")
    assert respond(memory, question) == answer
    with pytest.raises(HoldfastError, match="/teach takes a question"):
        respond(memory, "/teach Who is it?")
    with pytest.raises(HoldfastError, match="no command"):
        respond(memory, "/teech")
