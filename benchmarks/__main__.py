"""Every measurement in turn, and one table of all of them."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path

from benchmarks import (
    boundary,
    curvature,
    disk_written,
    growth,
    one_task,
    peak_memory,
    profiling,
    recall_row,
    sampling,
    start_up,
    ten_tasks,
    training_step,
)
from benchmarks.pairing import Plan
from benchmarks.record import DEFAULT_OUT, Measure, Report, markdown, write

# name -> (what to call, rounds that fit the whole into six minutes on two cores)
MEASUREMENTS: dict[str, tuple[Measure, int]] = {
    "training_step": (training_step.measure, 5),
    "curvature": (curvature.measure, 3),
    "sampling": (sampling.measure, 2),
    "recall_row": (recall_row.measure, 1),
    "boundary": (boundary.measure, 2),
    "one_task": (one_task.measure, 1),
    "ten_tasks": (ten_tasks.measure, 1),
    "peak_memory": (peak_memory.measure, 1),
    "disk_written": (disk_written.measure, 1),
    "start_up": (start_up.measure, 1),
    "growth": (growth.measure, 1),
    "profiling": (profiling.measure, 5),
}


def main() -> None:
    """Measure, write each result and the whole, print the whole."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, help="instead of each measurement's own")
    parser.add_argument("--smoke", action="store_true", help="smallest sizes: correctness only")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS))
    arguments = parser.parse_args()
    begin = time.perf_counter()
    reports: list[Report] = []
    for name in arguments.only:
        measure, rounds = MEASUREMENTS[name]
        start = time.perf_counter()
        report = measure(Plan(arguments.rounds or rounds, arguments.smoke))
        write(arguments.out, name, [report])
        reports.append(report)
        gc.collect()
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    write(arguments.out, "all", reports)
    print(markdown(reports))
    print(f"\n{time.perf_counter() - begin:.0f} s; written to {arguments.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
