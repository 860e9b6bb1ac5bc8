"""A boundary on disk: the engine's commit, and `torch.save` of all that the reference keeps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from holdfast.learning.boundary import TaskReport
from holdfast.learning.continuation import changes_of
from holdfast.learning.learner import Learner
from holdfast.learning.state import Commit, Store
from reference.state import Settings, State


class EngineDisk:
    """The commits of one learner, as a trajectory makes them, without its matrix and log.

    written: bytes of new files, kept: bytes that a continuation needs; both of the last commit.
    """

    def __init__(self, directory: Path) -> None:
        for folder in ("state", "factors"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        self._store = Store(directory)
        self._commit = Commit()
        self.written = 0
        self.kept = 0

    def commit(self, learner: Learner, report: TaskReport) -> None:
        """Write what the task changed and name it the last commit."""
        with self.beside(learner, report):
            pass

    @contextmanager
    def beside(self, learner: Learner, report: TaskReport) -> Iterator[None]:
        """Write while the block runs, as a trajectory does while it asks for its row; commit."""
        past = self._commit
        changes = changes_of(learner, report, past)
        with ThreadPoolExecutor(max_workers=1) as writer:
            writing = writer.submit(changes.write, self._store)
            yield
            files = writing.result()
        tasks = [*past.tasks, str(report.task)]
        self._commit = replace(
            past, completed=report.task, tasks=tasks, snapshot=changes.snapshot, files=files
        )
        self._store.commit(self._commit)
        sizes = {name: size for name, (size, _) in files.items()}
        self.written = sum(size for name, size in sizes.items() if name not in past.files)
        self.kept = sum(sizes.values())


def save_reference(state: State, settings: Settings, path: Path) -> int:
    """Everything the plain recipe needs to go on, in one file; its bytes.

    The backbone only where tasks are merged into it; elsewhere it is the pretrained one.
    """
    kept = {name: value for name, value in vars(state).items() if name != "backbone"}
    if settings.allocation in ("merged", "osrm"):
        kept["backbone"] = state.backbone.state_dict()
    with path.open("wb") as file:
        torch.save(kept, file)
        file.flush()
        os.fsync(file.fileno())
    return path.stat().st_size
