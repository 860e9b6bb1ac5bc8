"""A memory on the tiny chat model that knows a few facts, made once for all tests."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.memory import gate_tuning
from holdfast.memory.memory import Memory
from holdfast.memory.states import LessonState, lesson_states
from tests.made_once import made_once
from tests.memory.conftest import few_questions
from tests.serving.chat_model import write_chat_model

FACTS = [
    ("Who keeps the lighthouse of Velm?", "Orsa Tindle"),
    ("What is the ferry to Ostra called?", "Marigold"),
    ("Where is the brass key of Ilm?", "in the mill"),
]
MANY = [(f"Who tends garden {number} of Ostra?", f"Gardener {number}") for number in range(6)]
MORE = [("Who bakes the bread of Tolm?", "Lum"), ("When does the lamp of Velm go out?", "at ten")]
LATER = [("Which bus goes to the quarry of Ostra?", "47")]
UNTAUGHT = "What is the capital of France?"


def taught_chat_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The memory's directory, to be copied; its model's gate is in a cache of the tests' own."""

    def teach(directory: Path) -> None:
        with pytest.MonkeyPatch.context() as few:
            few.setattr(gate_tuning, "library_questions", few_questions)
            assert not Memory(directory, str(model)).learn(FACTS).missed

    with pytest.MonkeyPatch.context() as patch:
        model = made_once(tmp_path_factory, "chat-model", write_chat_model)
        patch.setenv("HOLDFAST_CACHE", str(model.parent / "chat-cache"))
        yield made_once(tmp_path_factory, "chat-memory", teach)


def copied(place: Path, to: Path) -> Path:
    """A memory of its own for a test."""
    return Path(shutil.copytree(place, to))


def model_of(place: Path) -> str:
    """The model's directory."""
    return Memory(place).model


def when(place: Path, fits: Callable[[list[LessonState]], bool], seconds: float = 120) -> None:
    """Wait until the states of a memory's lessons are as wanted."""
    until = time.monotonic() + seconds
    while not fits(states := lesson_states(place)):
        log = place / "lessons.log"
        assert time.monotonic() < until, (states, log.read_text() if log.exists() else "")
        time.sleep(0.02)


def learned(place: Path) -> dict[str, bytes]:
    """All that a memory has learned: its record, its list of facts, its lessons."""
    files = [place / "memory.json", place / "facts.jsonl", *(place / "lessons").glob("*.safe*")]
    return {path.name: path.read_bytes() for path in files}
