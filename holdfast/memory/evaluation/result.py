"""What was measured, as values that a file keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.core.files import read_json, write_json, write_text_atomically

RESULT_FILE = "evaluation.json"
ANSWERS = "answers"
VERSION = 2  # of the measures; what another one has written is measured anew


@dataclass(frozen=True)
class Measure:
    """One measure of a memory as it answers, of its weights alone and of its list alone.

    of: how many questions; None stands where a side has no such measure.
    """

    of: int | None = None
    memory: float | None = None
    weights: float | None = None
    list: float | None = None


@dataclass(frozen=True)
class MemoryEvaluation:
    """The rows by the names of their measures.

    identity: of the memory, the questions and their limit; about: facts, lessons, adapters, model,
    limit; stages: those that are measured; finished: whether all are.
    """

    identity: str
    about: Mapping[str, Any]
    rows: Mapping[str, Measure] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    finished: bool = False

    def after(self, stage: str, rows: Mapping[str, Measure]) -> MemoryEvaluation:
        """The evaluation with one more stage."""
        return replace(self, rows={**self.rows, **rows}, stages=(*self.stages, stage))

    def done(self) -> MemoryEvaluation:
        """The evaluation with all stages measured."""
        return replace(self, finished=True)

    def values(self) -> dict[str, Any]:
        """As JSON values."""
        return {"version": VERSION, **asdict(self)}


def write_evaluation(
    evaluation: MemoryEvaluation, answers: Sequence[Mapping[str, Any]], folder: Path
) -> None:
    """Write ``evaluation.json``, and before it what was answered in the last stage.

    answers: go to ``answers/STAGE.jsonl``. Raises HoldfastError when the folder cannot be written.
    """
    if answers:
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in answers)
        write_text_atomically(
            folder / ANSWERS / f"{evaluation.stages[-1]}.jsonl", text, parents=True
        )
    write_json(folder / RESULT_FILE, evaluation.values(), parents=True)


def read_evaluation(folder: Path, identity: str) -> MemoryEvaluation | None:
    """What is kept in a folder of an evaluation of this identity; None of another or of none."""
    path = folder / RESULT_FILE
    if not path.is_file():
        return None
    values = read_json(path)
    try:
        if (values.pop("version"), values["identity"]) != (VERSION, identity):
            return None
        rows = {name: Measure(**row) for name, row in values.pop("rows").items()}
        return MemoryEvaluation(**{**values, "rows": rows, "stages": tuple(values["stages"])})
    except (KeyError, TypeError, AttributeError):  # damaged, so it is measured anew
        return None
