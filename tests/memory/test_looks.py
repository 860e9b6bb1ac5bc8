"""What the gate compares is kept beside a lesson, and made anew for another gate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.memory.batch import GATE, read_lesson, read_looks, write_lesson
from holdfast.memory.engine import Engine
from holdfast.memory.memory import Memory
from holdfast.memory.record import read_record
from tests.memory.memories import MONDAY


def test_a_lesson_keeps_what_its_questions_look_like(two_lessons: Path, memory: Memory) -> None:
    engine, file = memory.engine(), memory.record.lessons[0].file
    stored = read_looks(two_lessons, file, engine.tuning.key)
    assert stored is not None
    questions = [item.question for item in memory.tasks[0].items]
    _, looks = engine.read(questions)
    shallow = engine.looks(questions)
    assert len(looks) == len(shallow) == len(stored.looks)
    for look, lower, on_file in zip(looks, shallow, stored.looks, strict=True):
        np.testing.assert_allclose(look.vector, lower.vector, atol=1e-5)
        np.testing.assert_allclose(look.vector, on_file.vector, atol=1e-3)
        assert look.names.keys() == lower.names.keys() == on_file.names.keys()


def test_another_gate_reads_the_questions_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are the same, also in a memory that kept vectors alone."""
    expected = [Memory(place).reply(fact[0]) for fact in MONDAY]
    read: list[list[str]] = []
    real = Engine.looks

    def looks(self: Engine, questions: list[str], **more: int) -> object:
        read.extend([list(questions)] if questions else [])
        return real(self, questions, **more)

    monkeypatch.setattr(Engine, "looks", looks)
    assert [Memory(place).reply(fact[0]) for fact in MONDAY] == expected and not read
    file = read_record(place).lessons[0].file
    tensors, note = read_lesson(place, file)
    for other in ({**note, "tuning": "another"}, note["owners"]):
        write_lesson(place, file, {**tensors, GATE: 0 * tensors[GATE]}, other)
        read.clear()
        assert [Memory(place).reply(fact[0]) for fact in MONDAY] == expected
        assert read == 3 * [[fact[0] for fact in MONDAY]]  # of three memories
    short = {**note, "owners": note["owners"][1:]}
    write_lesson(place, file, tensors, short)
    with pytest.raises(HoldfastError, match="is missing or damaged"):
        Memory(place).reply(MONDAY[0][0])
