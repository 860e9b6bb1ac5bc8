"""From the last step of a task to a safe state on disk, on both sides."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.committing import EngineDisk, save_reference
from benchmarks.floor import rates_of, rates_table
from benchmarks.pairing import Measurement, Plan
from benchmarks.record import Report, command
from benchmarks.twins import FULL, Twins, configuration, items
from holdfast.learning.learner import Sequences
from holdfast.prediction import work
from holdfast.prediction.shape import Work
from reference import adapters, optimisation, osrm
from reference.learner import close_workspace, consolidate_weight_anchors, open_workspace

METHODS = (FULL, "online_ewc", "osrm")


def measure(plan: Plan) -> Report:
    """Seconds of consolidation, of the factors' fate and of the commit."""
    count = 8 if plan.smoke else 16
    rounds = 1 if plan.smoke else plan.rounds
    measured = []
    for method in METHODS if not plan.smoke else METHODS[-1:]:
        sampling = {"samples": 8, "max_new_tokens": 16, "temperature": 1.0}
        twins = Twins(configuration(method, optim={"epochs": 1}, sampling=sampling))
        sequences = [twins.learner.encode(task) for task in items(rounds + 1, count).tasks]
        with tempfile.TemporaryDirectory() as folder:
            timed = _Boundaries(twins, Path(folder))
            pairs = [timed.of_task(one) for one in sequences][1:]
        ours, theirs = (list(side) for side in zip(*pairs, strict=True))
        shape = twins.shape
        floor = rates_of(shape).seconds(_work(twins, sequences[-1]))
        measured.append(Measurement(method, "s", ours, theirs, floor))
    return Report(
        "boundary",
        "Boundary",
        f"After a task of {count} items: consolidation, merging or keeping, and a synchronised "
        "commit; the reference writes its whole state with `torch.save`. The floor counts merging "
        "and the gradients of EWC, and no disk.",
        measured,
        [rates_table(shape)],
    )


class _Boundaries:
    def __init__(self, twins: Twins, folder: Path) -> None:
        self._twins = twins
        self._path = folder / "reference.pt"
        self._disk = EngineDisk(folder / "engine")

    def of_task(self, sequences: Sequences) -> tuple[float, float]:
        """Learn a task on both sides; seconds of the engine's and the reference's boundary."""
        report = self._twins.engine_learns(sequences)
        start = time.perf_counter()
        self._disk.commit(self._twins.learner, report)
        ours = time.perf_counter() - start + report.seconds["boundary"]
        return ours, self._reference(sequences, report.replay)

    def _reference(self, sequences: Sequences, replay: Sequences) -> float:
        twins = self._twins
        state, settings, given = twins.state, twins.settings, twins.given(sequences, replay)
        student = open_workspace(state, settings, given)
        begin = adapters.copied(adapters.coordinates(student))
        # The boundary costs the same whatever was learned, so no teacher is asked.
        settings.replay_weight, settings.function_strength = None, None
        path, steps = optimisation.optimise(student, None, None, state, settings, given)
        student.eval()
        start = time.perf_counter()
        consolidate_weight_anchors(student, begin, path, state, settings, given)
        if settings.allocation == "osrm":
            means = osrm.feature_means(
                student,
                adapters.adapted(student),
                sequences,
                settings.feature_budget,
                settings.feature_batch_size,
                settings.pad_id,
            )
            for module, mean in means.items():
                state.features.setdefault(module, []).append(mean)
        close_workspace(student, state, settings, steps)
        save_reference(state, settings, self._path)
        return time.perf_counter() - start


def _work(twins: Twins, sequences: Sequences) -> list[Work]:
    return work.boundary(twins.shape, twins.config, sequences)


if __name__ == "__main__":
    command(measure, rounds=5)
