"""The results of an evaluation, and the files that keep them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json, write_json, write_text_atomically

RESULT_FILE = "evaluation.json"
ANSWERS = "answers"
VERSION = 3  # of the measures; results of another version are not read


@dataclass(frozen=True)
class Measure:
    """One measure of a memory as it answers, of its weights alone and of its list alone.

    of: how many questions; a value is None if there is no such measure.
    """

    of: int | None = None
    memory: float | None = None
    weights: float | None = None
    list: float | None = None


@dataclass(frozen=True)
class MemoryEvaluation:
    """What is measured so far.

    identity: sha256 of the memory, the questions and their limit; about: the memory and the limit;
    rows: by the names of the measures; stages: those that are done; finished: whether all are.
    """

    identity: str
    about: Mapping[str, Any]
    rows: Mapping[str, Measure] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    finished: bool = False

    def after(self, stage: str, rows: Mapping[str, Measure]) -> MemoryEvaluation:
        """The evaluation with the rows of one more stage."""
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
    """Write the answers of the last stage to ``answers/STAGE.jsonl``, then ``evaluation.json``.

    Raises HoldfastError if the folder cannot be written.
    """
    if answers:
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in answers)
        write_text_atomically(
            folder / ANSWERS / f"{evaluation.stages[-1]}.jsonl", text, parents=True
        )
    write_json(folder / RESULT_FILE, evaluation.values(), parents=True)


def read_evaluation(folder: Path, identity: str) -> MemoryEvaluation | None:
    """The evaluation of this identity in a folder; None if it is missing, damaged or another."""
    try:
        values = read_json(folder / RESULT_FILE)
        if (values.pop("version"), values["identity"]) != (VERSION, identity):
            return None
        rows = {name: Measure(**row) for name, row in values.pop("rows").items()}
        return MemoryEvaluation(**{**values, "rows": rows, "stages": tuple(values["stages"])})
    except (HoldfastError, KeyError, TypeError, AttributeError):  # measure again
        return None
