"""Write results as JSON for programs and as Markdown for readers."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

import torch

from benchmarks.pairing import Measurement, Plan
from holdfast.studies.local import usable_cores

DEFAULT_OUT = Path("build/benchmarks")
_HEADER = ("what", "unit", "engine", "reference", "ratio", "range", "target")


@dataclass(frozen=True)
class Table:
    """Results other than engine-reference pairs: a title, column names, rows of text."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Report:
    """The results of one module. name: the module's; about: the method in a sentence or two."""

    name: str
    title: str
    about: str
    measurements: list[Measurement] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


_VERSIONED = ("holdfast", "torch", "transformers", "peft", "numpy")

Measure = Callable[[Plan], Report]


def command(measure: Measure, rounds: int) -> None:
    """The command line of one benchmark: measure, write both files, print the report."""
    parser = argparse.ArgumentParser(description=measure.__doc__)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--smoke", action="store_true", help="smallest sizes: correctness only")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    arguments = parser.parse_args()
    report = measure(Plan(arguments.rounds, arguments.smoke))
    write(arguments.out, report.name, [report])
    print(markdown([report]))


def write(directory: Path, name: str, reports: Sequence[Report]) -> None:
    """Write ``name``.json and ``name``.md into ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    values = {
        "machine": machine(),
        "when": time.strftime("%Y-%m-%d"),
        "reports": [as_values(report) for report in reports],
    }
    (directory / f"{name}.json").write_text(json.dumps(values, indent=1) + "\n", "utf-8")
    (directory / f"{name}.md").write_text(markdown(reports) + "\n", "utf-8")


def as_values(report: Report) -> dict[str, object]:
    """A report as JSON values, with the ratios beside the raw numbers."""
    values = asdict(report)
    for written, measured in zip(values["measurements"], report.measurements, strict=True):
        written |= {"ratio": measured.ratio, "ratios": measured.ratios}
    return values


def markdown(reports: Sequence[Report]) -> str:
    """One line about the machine, then every report."""
    parts = ", ".join(f"{key} {value}" for key, value in machine().items())
    return "\n\n".join([f"Measured with: {parts}.", *map(_section, reports)])


def _section(report: Report) -> str:
    parts = [f"### {report.title}", report.about]
    if report.measurements:
        parts.append(_lines(_HEADER, [_row(measurement) for measurement in report.measurements]))
    notes = [
        f"- {measurement.name}: {measurement.note}"
        for measurement in report.measurements
        if measurement.note
    ]
    if notes:
        parts.append("\n".join(notes))
    for table in report.tables:
        parts += [f"{table.title}:", _lines(table.header, table.rows)]
    return "\n\n".join(parts)


def _row(measurement: Measurement) -> list[str]:
    reference = statistics.median(measurement.reference) if measurement.reference else None
    ratios = measurement.ratios
    spread = f"{min(ratios):.2f}-{max(ratios):.2f}" if ratios else ""
    target = "" if measurement.target is None else f">= {measurement.target:g}x"
    return [
        measurement.name,
        measurement.unit,
        number(statistics.median(measurement.engine)),
        number(reference),
        "" if measurement.ratio is None else f"{measurement.ratio:.2f}x",
        spread,
        target,
    ]


def number(value: float | None) -> str:
    """Three significant digits, no decimals from 1000 on; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


def machine() -> dict[str, str | int]:
    """Processor, cores, threads and versions, by which a reader judges a time."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "torch threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{name: version(name) for name in _VERSIONED},
    }


def _processor() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
