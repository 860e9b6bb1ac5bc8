"""A conversation with a memory on a chat model: sources are marked, facts are taught."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.conversation import respond
from holdfast.core.errors import HoldfastError
from holdfast.core.files import lock_directory
from holdfast.memory.memory import Memory
from tests.serving.chat_memories import (
    FACTS,
    MORE,
    UNTAUGHT,
    copied,
    when,
)


def test_answers_are_marked_unless_the_weights_give_them(chat_memory: Path) -> None:
    memory = Memory(chat_memory)
    assert respond(memory, FACTS[0][0]) == FACTS[0][1]
    own = respond(memory, UNTAUGHT)
    assert own == f"{memory.ask(UNTAUGHT)}\n  (the model's own answer; it was not taught that)"
    follow_up = respond(memory, "and his sister?")  # names nothing, so the model answers it
    assert follow_up.endswith("(the model's own answer; it was not taught that)")
    listed = respond(memory, "who keeps the lighthouse of velm")
    assert listed.startswith(FACTS[0][1])
    refused = respond(memory, UNTAUGHT, taught_only=True)
    assert refused.startswith("it was not taught that; the model would say")
    assert respond(memory, FACTS[0][0], taught_only=True) == FACTS[0][1]
    assert "marked" in respond(memory, "/help") and "/teach" in respond(memory, "/help")


def test_teaching_and_what_is_missed(chat_memory: Path, tmp_path: Path) -> None:
    memory = Memory(copied(chat_memory, tmp_path / "m"))
    assert respond(memory, "/forgotten") == "nothing; all 3 facts are answered from the weights"
    question, answer = MORE[0]
    said = respond(memory, f"/teach {question} {answer}")
    assert "lesson 2: 1 of 1 facts answered from the weights" in said
    assert respond(memory, question) == answer
    Memory(memory.directory).learn(MORE[1:])  # another process
    assert respond(memory, MORE[1][0]) == MORE[1][1]
    with pytest.raises(HoldfastError, match="/teach takes a question"):
        respond(memory, "/teach Who is it?")


def test_what_is_taught_beside_another_process_is_learned_after_it(
    chat_memory: Path, tmp_path: Path
) -> None:
    memory = Memory(copied(chat_memory, tmp_path / "m"))
    question, answer = MORE[0]
    with lock_directory(memory.directory):  # as a lesson of another process does
        said = respond(memory, f"/teach {question} {answer}")
        assert said == "another process learns here; this fact is on file and learned next"
    when(memory.directory, lambda states: states[1].state == "learned")
    assert respond(memory, question) == answer
