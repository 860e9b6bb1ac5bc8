"""A tiny chat model, a cache whose gate is fitted once, and a memory that knows two lessons."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.memory import gate_tuning
from holdfast.memory.library import LibraryQuestion, library_questions
from holdfast.memory.memory import Memory
from tests.cli.conftest import holdfast
from tests.made_once import made_once
from tests.memory.memories import MONDAY, TUESDAY
from tests.model.chat_models import write_chat_model

__all__ = ["holdfast"]


@pytest.fixture(scope="session")
def chat_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all workers of a session: a gate is fitted once."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "chat-cache"


@pytest.fixture(autouse=True)
def cache(
    request: pytest.FixtureRequest, chat_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The cache of all tests here; those marked ``real`` use this user's."""
    if request.node.get_closest_marker("real") is None:
        monkeypatch.setenv("HOLDFAST_CACHE", str(chat_cache))
        monkeypatch.setattr(gate_tuning, "library_questions", few_questions)
    return chat_cache


def few_questions(draw: random.Random) -> list[LibraryQuestion]:
    """A tenth of the library: a tiny model tells nothing more apart by the rest."""
    return library_questions(draw)[:420]


@pytest.fixture
def quick_gate(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """A gate that is hardly fitted, for models that no other test has."""
    monkeypatch.setattr(gate_tuning, "_STEPS", 2)
    monkeypatch.setattr(gate_tuning, "_PAIRS", 60)
    monkeypatch.setattr(gate_tuning, "library_questions", lambda draw: few_questions(draw)[:84])


@pytest.fixture(scope="session")
def chat_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights and a chat template."""
    return made_once(tmp_path_factory, "tiny", write_chat_model)


@pytest.fixture(scope="session")
def two_lessons(
    chat_directory: Path, chat_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A memory that learned MONDAY, then TUESDAY, undisturbed; never to be written."""

    def teach(place: Path) -> None:
        memory = Memory(place / "m", str(chat_directory))
        for facts in (MONDAY, TUESDAY):
            assert not memory.learn(facts).missed

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(chat_cache))
        patch.setattr(gate_tuning, "library_questions", few_questions)
        return made_once(tmp_path_factory, "two-lessons", teach) / "m"


@pytest.fixture
def copied(two_lessons: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes copies of that memory, under its name."""

    def copy() -> Path:
        folder = tmp_path / str(len(os.listdir(tmp_path)))
        return shutil.copytree(two_lessons, folder / "m")

    return copy


@pytest.fixture
def place(copied: Callable[[], Path]) -> Path:
    """The directory of such a copy."""
    return copied()


@pytest.fixture
def memory(place: Path) -> Memory:
    """That copy, opened."""
    return Memory(place)


@pytest.fixture
def unflushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies loses nothing that it has written: flushing is for power cuts."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
