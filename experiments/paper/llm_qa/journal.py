"""The journal of a stream's replies on disk, from which a later call continues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.paper.kept_between_calls import extend
from experiments.paper.llm_qa.collection import Verdict
from holdfast.builders.text_model import Failure
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_bytes
from holdfast.streams.rows import lines_of


@dataclass(frozen=True)
class Line:
    """One reply. task, number: of its request; verdicts: on its items, None without a filter."""

    task: int
    number: int
    reply: str | Failure
    verdicts: tuple[Verdict, ...] | None = None


class Journal:
    """``replies.jsonl``: one line per reply, in the order of the requests."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Line]:
        """Every line. Raises HoldfastError for a damaged one, or when the file cannot be read."""
        lines = []
        for place, raw in lines_of(read_bytes(self.path) if self.path.exists() else b""):
            try:
                lines.append(_line(json.loads(raw)))
            except (ValueError, TypeError, KeyError):
                raise HoldfastError(
                    f"{self.path} {place}: is no record of a reply; remove this line and all "
                    "after it, then run the same command again"
                ) from None
        return lines

    def append(self, lines: Sequence[Line]) -> None:
        """Append lines and flush them to disk, all or none.

        A local model's replies depend, through rounding, on the rest of their batch, so asking a
        part of it again may give other replies. Raises HoldfastError when the disk is full.
        """
        extend(self.path, "".join(json.dumps(_values(line)) + "\n" for line in lines))


def _values(line: Line) -> dict[str, Any]:
    values: dict[str, Any] = {"task": line.task, "number": line.number}
    if isinstance(line.reply, Failure):
        values["failed"] = line.reply.reason
    else:
        values["reply"] = line.reply
    if line.verdicts is not None:
        values["known"] = [
            verdict.reason if isinstance(verdict, Failure) else verdict for verdict in line.verdicts
        ]
    return values


def _line(values: dict[str, Any]) -> Line:
    reply = Failure(values["failed"]) if "failed" in values else values["reply"]
    if not isinstance(reply, str | Failure):
        raise TypeError(reply)
    verdicts = None
    if "known" in values:
        verdicts = tuple(
            Failure(verdict) if isinstance(verdict, str) else bool(verdict)
            for verdict in values["known"]
        )
    return Line(values["task"], values["number"], reply, verdicts)
