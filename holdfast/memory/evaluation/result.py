"""The results of an evaluation: the files that keep them, and the table for a reader."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json, write_json, write_text_atomically
from holdfast.streams.item import counted

RESULT_FILE = "evaluation.json"
VERSION = 3  # of the measures; results of another version are not read

# The rows of the table in order: measure, label, unit.
LABELS = (
    ("recalled", "taught wordings recalled", "share"),
    ("recalled_from_weights", "  from the weights", "share"),
    ("wordings", "other wordings answered", "share"),
    ("wordings_from_weights", "  from the weights", "share"),
    ("reverse", "the other side of a fact", "share"),
    ("sentence", "inside a sentence", "share"),
    ("everyday_kept", "everyday questions kept", "share"),
    ("everyday_accepted", "  taken for taught", "share"),
    ("everyday_taught_answer", "  given a taught answer", "share"),
    ("others_accepted", "same relation, other entity: taken for taught", "share"),
    ("others_taught_answer", "  given a taught answer", "share"),
    ("others_unchanged", "  answered as before", "share"),
    ("untaught_accepted", "same entity, other relation: taken for taught", "share"),
    ("untaught_taught_answer", "  given a taught answer", "share"),
    ("untaught_unchanged", "  answered as before", "share"),
    ("kl", "KL to the untouched model, nats a token", "number"),
    ("bits_per_byte", "bits per byte of text", "number"),
    ("bits_per_byte_change", "  change", "change"),
    ("seconds", "seconds a question", "number"),
    ("bytes", "on disk", "bytes"),
    ("model_bytes", "  and the model, shared", "bytes"),
)


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

    def values(self) -> dict[str, Any]:
        """As JSON values."""
        return {"version": VERSION, **asdict(self)}


def write_evaluation(
    folder: Path | None, evaluation: MemoryEvaluation, answers: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Write the answers of the last stage to ``answers/STAGE.jsonl``, then ``evaluation.json``.

    folder: None to write nothing. Raises HoldfastError if it cannot be written.
    """
    if folder is None:
        return
    if answers:
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in answers)
        path = folder / "answers" / f"{evaluation.stages[-1]}.jsonl"
        write_text_atomically(path, text, parents=True)
    write_json(folder / RESULT_FILE, evaluation.values(), parents=True)


def read_evaluation(folder: Path | None, identity: str) -> MemoryEvaluation | None:
    """The evaluation of this identity in a folder; None if it is missing, damaged or another."""
    if folder is None:
        return None
    try:
        values = read_json(folder / RESULT_FILE)
        if (values.pop("version"), values["identity"]) != (VERSION, identity):
            return None
        rows = {name: Measure(**row) for name, row in values.pop("rows").items()}
        return MemoryEvaluation(**{**values, "rows": rows, "stages": tuple(values["stages"])})
    except (HoldfastError, KeyError, TypeError, AttributeError):  # measure again
        return None


def about_line(evaluation: MemoryEvaluation) -> str:
    """What was measured, in one line."""
    about = evaluation.about
    adapters = "one adapter" if about["adapters"] == 1 else f"{about['adapters']} adapters"
    facts, lessons = counted(about["facts"], "fact"), counted(about["lessons"], "lesson")
    line = f"{facts} in {lessons}, {adapters}, {about['model']}"
    if about["limit"] is not None:
        line += f"; at most {about['limit']} questions of each kind"
    return line


def table_rows(
    evaluation: MemoryEvaluation, labels: Sequence[tuple[str, str, str]] = LABELS
) -> list[tuple[str, str, str, str, str]]:
    """The rows with a value, as texts: label, number of questions, memory, weights, list."""
    rows = []
    for name, label, unit in labels:
        row = evaluation.rows.get(name, Measure())
        memory, weights, listed = (
            _with_unit(value, unit) for value in (row.memory, row.weights, row.list)
        )
        if {memory, weights, listed} != {"-"}:
            count = "" if row.of is None else str(row.of)
            rows.append((label, count, memory, weights, listed))
    return rows


def notes(evaluation: MemoryEvaluation) -> list[str]:
    """What the columns of the table mean."""
    lines = ["memory: as it answers. list: the gate and the stored answers, without weights."]
    if evaluation.about.get("neurons"):
        lines.append("weights: neurons for all facts always act, without gate or list.")
    elif evaluation.about["adapters"] == 1:
        lines.append("weights: the adapter always acts, without gate or list.")
    else:
        lines.append(
            "weights: the adapter of the fact's own lesson, without the gate's decision or the "
            "list; several adapters have no measure of what was not taught."
        )
    lines.append(
        "Behind the gate, what was not taught is answered by the untouched model: KL is 0 and bits "
        "per byte are unchanged by construction."
    )
    return lines


def _with_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "bytes":
        return f"{value / 1e6:,.2f} MB"
    return {"share": "{:.1%}", "change": "{:+.2%}", "number": "{:.3f}"}[unit].format(value)
