"""Bytes that a boundary writes, a method at a time."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.committing import EngineDisk, save_reference
from benchmarks.pairing import Measurement, Plan
from benchmarks.record import Report, command
from benchmarks.storage import formula
from benchmarks.twins import FULL, Twins, configuration, items

METHODS = ("vanilla", "merge", FULL, "online_ewc", "osrm", "olora")
_KIB = 1024


def measure(plan: Plan) -> Report:
    """KiB written by the second boundary, where every anchor has a past."""
    measured = []
    for method in METHODS if not plan.smoke else METHODS[:2]:
        sampling = {"samples": 4, "max_new_tokens": 8, "temperature": 1.0}
        twins = Twins(configuration(method, optim={"epochs": 1}, sampling=sampling))
        with tempfile.TemporaryDirectory() as folder:
            disk = EngineDisk(Path(folder))
            for task in items(2, 8).tasks:
                sequences = twins.learner.encode(task)
                report = twins.engine_learns(sequences)
                disk.commit(twins.learner, report)
                twins.reference_learns(twins.given(sequences, report.replay))
            theirs = save_reference(twins.state, twins.settings, Path(folder) / "reference.pt")
        parts = formula(twins.learner, twins.config, task=2)
        note = ", ".join(f"{part} {size / _KIB:,.0f}" for part, size in parts.items())
        measured.append(
            Measurement(
                method,
                "KiB",
                [disk.written / _KIB],
                [theirs / _KIB],
                sum(parts.values()) / _KIB,
                note=f"kept on disk {disk.kept / _KIB:,.0f}; by formula {note} (KiB)",
            )
        )
    return Report(
        "disk_written",
        "Disk written a task",
        "New files of the second task's commit, beside `torch.save` of all that the reference "
        "keeps. The floor is the paper's storage formula for the whole state in float32. Folded "
        "dense matrices are rebuilt from the factors since their last copy, so the engine "
        "writes less than the state where it need not write them. Counts, so one round.",
        measured,
    )


if __name__ == "__main__":
    command(measure, rounds=1)
