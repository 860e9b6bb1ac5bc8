"""From the start of a process to the help, to the import, and to the first training step."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.children import run
from benchmarks.pairing import Measurement, Plan
from benchmarks.record import Report, command

FIRST_STEP_TARGET = 5.0
_IMPORT = "import holdfast"
_LIBRARIES = "import torch, transformers, peft"
# The command itself, with a progress that ends the process at the first optimiser step.
_ENGINE = """
import os, sys
from contextlib import contextmanager
import holdfast.cli.progress as shown
from holdfast.learning.progress import Progress
class First(Progress):
    def step(self, phase, task, done, total):
        if phase == "training":
            os._exit(0)
@contextmanager
def first(*_, **__):
    yield First()
shown.showing = first
from holdfast.cli.main import app
app(["run", "demo", "--out", sys.argv[1]])
"""


def measure(plan: Plan) -> Report:
    """Seconds from the start of a process, the engine's and the plain recipe's in turn."""
    python = sys.executable
    console = [python, "-m", "holdfast.cli.main"]
    script = Path(python).with_name("holdfast")
    if script.exists():
        console = [str(script)]
    rounds = 0 if plan.smoke else plan.rounds
    libraries = None if plan.smoke else [python, "-c", _LIBRARIES]
    measured = [
        _timed("import holdfast", rounds, [python, "-c", _IMPORT], libraries, 1.0),
        _timed("holdfast --help", rounds, [*console, "--help"], None, 1.0),
    ]
    if not plan.smoke:
        measured.append(_first_step(rounds))
    return Report(
        "start_up",
        "Start-up",
        "Whole processes, files warm in the page cache after one untimed start. `import holdfast` "
        "is beside the import of the three libraries that the reference needs; the first training "
        "step of `holdfast run demo` beside a reference process that loads the embedded model "
        "and takes a step.",
        measured,
    )


def _first_step(rounds: int) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        reference = [sys.executable, "-c", "from benchmarks.first_step import take; take()"]
        ours, theirs = [], []
        for number in range(rounds + 1):
            out = str(Path(folder) / str(number))
            a = _seconds([sys.executable, "-c", _ENGINE, out])
            b = _seconds(reference)
            if number:  # the first one warms the page cache
                ours.append(a)
                theirs.append(b)
    return Measurement(
        "run demo, to the first training step", "s", ours, theirs, at_most=FIRST_STEP_TARGET
    )


def _timed(
    name: str, rounds: int, ours: list[str], theirs: list[str] | None, at_most: float
) -> Measurement:
    taken: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for side, arguments in enumerate((ours, theirs)):
            if arguments is not None:
                spent = _seconds(arguments)
                if number or not rounds:
                    taken[side].append(spent)
    return Measurement(name, "s", taken[0], taken[1] or None, at_most=at_most)


def _seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    run(arguments)
    return time.perf_counter() - start


if __name__ == "__main__":
    command(measure, rounds=3)
