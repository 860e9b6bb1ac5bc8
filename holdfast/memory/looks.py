"""What the gate compares of the questions on file, stored with their lesson's adapter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.memory.gate import QuestionLook
from holdfast.memory.record import damaged_lesson, read_lesson
from holdfast.streams import Item
from holdfast.streams.batches import fact_key, fact_question

GATE = "gate"  # the name of the vectors among the tensors of a lesson's file


@dataclass(frozen=True)
class Looks:
    """What the gate compares of questions on file. owners: the key of each question's fact."""

    owners: tuple[str, ...]
    looks: tuple[QuestionLook, ...]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Their vectors [questions, relations] in float16, to be written."""
        vectors = torch.from_numpy(np.stack([look.vector for look in self.looks]))
        return {GATE: vectors.to(torch.float16)}

    def note(self, tuning: str) -> dict[str, Any]:
        """What is written beside the tensors. tuning: the key of the tuning that made them."""
        names = [
            {word: round(weight, 3) for word, weight in look.names.items()} for look in self.looks
        ]
        return {"tuning": tuning, "owners": list(self.owners), "names": names}


def read_looks(directory: Path, file: str, tuning: str) -> Looks | None:
    """Read the looks of a lesson's file; None if another tuning made them.

    Raises HoldfastError if the file is missing or damaged.
    """
    tensors, note = read_lesson(directory, file, only=GATE)
    if not isinstance(note, dict) or note.get("tuning") != tuning:
        return None
    vectors = tensors[GATE].float().numpy()
    owners, names = note.get("owners", []), note.get("names", [])
    if not len(vectors) == len(owners) == len(names):
        raise damaged_lesson(directory, file, "it is of other facts")
    looks = [
        QuestionLook(names_of, vector) for names_of, vector in zip(names, vectors, strict=True)
    ]
    return Looks(tuple(owners), tuple(looks))


def questions_on_file(items: Iterable[Item]) -> list[tuple[str, str]]:
    """Pairs of a fact's key and a wording on file, once each, the fact's question first."""
    questions = (
        (fact_key(item), text) for item in items for text in (fact_question(item), item.question)
    )
    return list(dict.fromkeys(questions))
