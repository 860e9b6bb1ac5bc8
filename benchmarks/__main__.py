"""Time a training step and sampling against the plain reference; write one table of both."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import sampling, training_step
from benchmarks.pairing import Plan
from benchmarks.record import DEFAULT_OUT, markdown, write

ROUNDS = {training_step: 5, sampling: 3}  # two minutes on two cores


def main() -> None:
    """Run both benchmarks, write each report and one of both, and print the latter."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    out = parser.parse_args().out
    reports = []
    for module, rounds in ROUNDS.items():
        reports.append(module.measure(Plan(rounds)))
        write(out, reports[-1].name, reports[-1:])
    write(out, "all", reports)
    print(markdown(reports))


if __name__ == "__main__":
    main()
