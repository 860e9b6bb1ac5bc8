"""What the GPU script found: rows beside their floors, and every phase as it ends."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks.machine import machine
from benchmarks.paper_scale.checks import CheckError
from benchmarks.paper_scale.engine import PAPER
from benchmarks.record import Report, Table, markdown, number

NAME = "gpu_paper_scale"
T = TypeVar("T")


@dataclass
class Row:
    """One line of the table. floor: worked out on paper; counted: from operations and bytes.

    reach: what is asked for, at most (at least where ``more`` is better).
    """

    name: str
    unit: str
    floor: float | None = None
    reach: float | None = None
    more: bool = False
    measured: float | None = None
    counted: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """None where nothing is asked for or nothing was measured."""
        if self.reach is None or self.measured is None:
            return None
        return self.measured >= self.reach if self.more else self.measured <= self.reach


def paper_rows() -> list[Row]:
    """What is asked for on one NVIDIA H200; the floor of a step is that of ten epochs."""
    steps = PAPER.epochs * -(-PAPER.items // 8)
    return [
        Row("sampling", "s", 1.5, 3.0),
        Row("teacher", "s", 1.3, 2.5),
        Row("training step", "ms", 1000 * 10 / steps, 110),
        Row("training", "s", 10),
        Row("boundary", "s"),
        Row("row", "s", 2.6, 5.0),
        Row("commit", "s"),
        Row("whole task", "s", 1.5 + 1.3 + 10 + 2.6, 27),
        Row("peak memory", "GB", None, 40),
        Row("bytes committed", "GB", None, 0.6),
        Row("reference recipe over whole task", "x", None, 30, more=True),
    ]


class Record:
    """The rows, and every phase of the call as it ends; on disk from the first one on."""

    def __init__(self, directory: Path, about: str, device: str, asked: bool) -> None:
        rows = paper_rows()
        if not asked:
            rows = [Row(row.name, row.unit, more=row.more) for row in rows]
        self.rows = {row.name: row for row in rows}
        self.about = about
        self.device = device
        self.phases: list[tuple[str, float, str]] = []
        self.tables: dict[str, list[tuple[str, str]]] = {}
        self.failed = False
        self._directory = directory

    def phase(self, name: str, work: Callable[[], T]) -> T | None:
        """Do one phase; None where it fails, and the next has its turn all the same."""
        begin, outcome, result = time.perf_counter(), "done", None
        try:
            result = work()
        except torch.OutOfMemoryError as error:
            outcome = f"out of memory: {' '.join(str(error).split())[:160]}"
        except CheckError:
            raise
        except Exception as error:  # noqa: BLE001 - device time is dear: the others go on
            traceback.print_exc()
            self.failed = True
            outcome = f"failed: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
        self.phases.append((name, time.perf_counter() - begin, outcome))
        print(f"{name}: {self.phases[-1][1]:.1f} s, {outcome}", file=sys.stderr, flush=True)
        self.write()
        return result

    def found(
        self, name: str, measured: float, counted: float | None = None, note: str = ""
    ) -> None:
        """Fill a row."""
        row = self.rows[name]
        row.measured, row.counted, row.note = measured, counted, note
        print(f"  {name}: {number(measured)} {row.unit} {note}", file=sys.stderr, flush=True)

    def say(self, table: str, what: str, found: str) -> None:
        """A line of a table beside the rows."""
        self.tables.setdefault(table, []).append((what, found))
        print(f"  {what}: {found}", file=sys.stderr, flush=True)

    def write(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        values = {
            "machine": machine(),
            "device": self.device,
            "when": time.strftime("%Y-%m-%d"),
            "about": self.about,
            "rows": [asdict(row) | {"met": row.met} for row in self.rows.values()],
            "tables": self.tables,
            "phases": self.phases,
        }
        (self._directory / f"{NAME}.json").write_text(json.dumps(values, indent=1) + "\n", "utf-8")
        (self._directory / f"{NAME}.md").write_text(self.markdown() + "\n", "utf-8")

    def markdown(self) -> str:
        says = {True: "met", False: "not met", None: ""}
        lines = [
            (
                row.name,
                row.unit,
                number(row.measured),
                number(row.floor),
                number(row.counted),
                "" if row.reach is None else f"{'>=' if row.more else '<='} {row.reach:g}",
                says[row.met],
                row.note,
            )
            for row in self.rows.values()
        ]
        header = ("what", "unit", "measured", "floor", "counted floor", "reach", "", "note")
        tables = [Table(self.device, header, lines)]
        tables += [Table(title, ("what", "found"), rows) for title, rows in self.tables.items()]
        phases = [(name, f"{seconds:.1f}", outcome) for name, seconds, outcome in self.phases]
        tables.append(Table("This call", ("phase", "s", "outcome"), phases))
        return markdown([Report(NAME, "The paper's scale on one GPU", self.about, tables=tables)])
