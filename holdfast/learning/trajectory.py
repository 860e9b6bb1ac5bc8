"""A trajectory: all that one configuration determines, as far as it has gone.

``advance`` learns on from what is on disk. An interrupted run, a promotion in a search and one
more batch of facts are the same call.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.backbone.load import load_backbone
from holdfast.core.errors import HoldfastError
from holdfast.core.files import (
    InUseError,
    alone,
    append,
    json_text,
    write_text_atomically,
)
from holdfast.core.notebook import caption
from holdfast.evaluation.recall import Recall
from holdfast.learning.boundary import TaskReport, learn_task
from holdfast.learning.capability import measure_text
from holdfast.learning.config import RunConfig
from holdfast.learning.continuation import changes_of, restore_learner
from holdfast.learning.identity import Identity
from holdfast.learning.learner import Learner
from holdfast.learning.progress import Progress, Stopwatch
from holdfast.learning.state import Commit, Store
from holdfast.results import RecallMatrix, summarise
from holdfast.results.capability import model_after
from holdfast.streams import Stream, load_stream


class Trajectory:
    """One configuration's path through a stream, kept in one directory.

    horizon: tasks learned and committed; matrix: their recall.
    """

    def __init__(
        self, config: RunConfig, directory: str | Path, *, stream: Stream | None = None
    ) -> None:
        """Open or prepare a directory; nothing is written before :meth:`advance`.

        stream: use this one instead of the one that the configuration names.
        Raises HoldfastError when the directory belongs to another configuration (naming every
        field that differs), is no trajectory's, or is damaged.
        """
        self.config = config
        self.directory = Path(directory)
        self.stream = stream if stream is not None else load_stream(config.stream)
        self._store = Store(self.directory)
        self._learner: Learner | None = None
        self._held = False
        self._identity = Identity(self.directory, config, exact_case=self.stream.exact_case)
        self._identity.check_directory()
        self._commit = self._store.last_commit()
        self._check_learned_tasks(self.stream)

    @property
    def horizon(self) -> int:
        """Tasks learned and committed."""
        return self._commit.completed

    @property
    def matrix(self) -> RecallMatrix:
        """Recall after every boundary that was observed."""
        text = self._commit.matrix
        return RecallMatrix.from_csv(text) if text else RecallMatrix()

    def __repr__(self) -> str:
        learned = f"{self.horizon} of {len(self.stream.tasks)} tasks of {self.stream.name}"
        method, seed = self.config.method, self.config.seed
        return f"Trajectory({method}, seed {seed}, {learned}, {str(self.directory)!r})"

    def _repr_html_(self) -> str:
        """For notebooks: what it is, and its matrix."""
        return caption(repr(self)) + (self.matrix._repr_html_() if self.horizon else "")

    def metrics(self) -> dict[str, Any]:
        """The contents of metrics.json."""
        return summarise(self.matrix, _emission(self._commit))

    def advance(self, horizon: int | None = None, progress: Progress | None = None) -> RecallMatrix:
        """Learn until ``horizon`` tasks are learned (None: the whole stream); return the matrix.

        What is learned already is not learned again. A process killed at any instant loses at
        most the task in progress, and the continuation is bitwise the uninterrupted run.
        Raises HoldfastError: a horizon beyond the stream, a second writer, a full disk, an
        answer that truncation would cut.
        """
        target = len(self.stream.tasks) if horizon is None else horizon
        if not 1 <= target <= len(self.stream.tasks):
            raise HoldfastError(
                f"horizon {target} is not within the stream, which has {len(self.stream.tasks)} "
                "tasks; lower --tasks or raise stream.tasks"
            )
        if target <= self.horizon:
            self._mend_derived()
            return self.matrix
        with self.writing():
            learner = self._ready_learner()
            recall = Recall(
                learner.backbone,
                learner.template,
                self.config.evaluation,
                exact_case=self.stream.exact_case,
            )
            while learner.completed < target:
                self._learn_one(learner, recall, target, progress or Progress())
        return self.matrix

    def learner(self) -> Learner:
        """The model after the last committed task, with all that its method carries."""
        return self._ready_learner()

    def grow(self, stream: Stream) -> None:
        """Go on with a longer stream; the model in memory stays. Nothing is written.

        Raises HoldfastError when it does not begin with what was learned, or when truncation
        would cut an answer.
        """
        self._check_learned_tasks(stream)
        if self._learner is not None:
            self._learner.check(stream)
        self.stream = stream

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the directory alone, with its configuration written and its learner ready.

        :meth:`advance` does so itself; around it, nobody comes in between. Raises HoldfastError
        when another process holds the directory, or it belongs to another configuration by now.
        """
        with self._alone():
            fingerprint = self._ready_learner().backbone.fingerprint
            self._identity.check(fingerprint)
            self._identity.write(self.stream, fingerprint)
            self._cut_log()
            try:
                yield
            except BaseException:
                self._learner = None  # it may be ahead of what is committed
                raise

    def _learn_one(self, learner: Learner, recall: Recall, target: int, progress: Progress) -> None:
        watch = Stopwatch()
        number = learner.completed + 1
        measured = self._measured(learner, 0, watch) if number == 1 else {}
        task = self.stream.tasks[number - 1]
        matrix = self.matrix
        rows = self.config.evaluation.rows
        boxed = dict(self._commit.boxed)
        if rows != "horizon":
            # Forward transfer is measured when a task arrives, so that a stream may grow.
            with watch.phase("evaluation"):
                unseen = recall.task(task)
            matrix = matrix.with_recall(number - 1, number, (unseen.correct, unseen.items))
        lesson = learner.lesson(self.stream.tasks[:number])
        report = learn_task(learner, lesson, progress)
        with watch.phase("commit"):
            changes = changes_of(learner, report, self._commit)
        with ThreadPoolExecutor(max_workers=1) as beside:
            writing = beside.submit(changes.write, self._store)
            asked = self._asked_after(number, target)
            if asked:
                # Answering changes nothing that the commit writes meanwhile.
                with watch.phase("evaluation"):
                    row = recall.row(self.stream.tasks[asked.start - 1 : number])
                counts = {task: (r.correct, r.items) for task, r in zip(asked, row, strict=True)}
                matrix = matrix.with_row(number, counts)
                diagonal, items = row[-1].boxed, row[-1].items
                boxed[str(number)] = [
                    diagonal, items, sum(r.boxed for r in row), sum(r.items for r in row)
                ]  # fmt: skip
            if number == target or number % self.config.evaluation.capability_every == 0:
                measured |= self._measured(learner, number, watch)
            with watch.phase("commit"):
                files = writing.result()
        fingerprints = [*self._commit.tasks, task.fingerprint]
        commit = Commit(
            number, fingerprints, matrix.to_csv(), boxed, snapshot=changes.snapshot, files=files
        )
        self._save(learner, report, commit, watch, measured)
        progress.task_done(number, target, matrix)

    def _asked_after(self, number: int, target: int) -> range:
        """The tasks that are asked about after task ``number``: all so far, itself, or none."""
        rows = self.config.evaluation.rows
        every = {"every": 1, "horizon": target}.get(rows) if isinstance(rows, str) else rows
        assert every is not None
        if number == target or number % every == 0:
            return range(1, number + 1)
        return range(0) if rows == "horizon" else range(number, number + 1)

    def _measured(self, learner: Learner, number: int, watch: Stopwatch) -> dict[str, Any]:
        """What the log says of the text after ``number`` tasks; nothing where nobody asked."""
        if "text" not in self.config.evaluation.capability:
            return {}
        model = learner.backbone.fingerprint
        if number:
            learned = [task.fingerprint for task in self.stream.tasks[:number]]
            model = model_after(self._identity.sha256(model), learned)
        with watch.phase("capability"):
            bits = measure_text(learner, self.directory, number, model)
        return {"text_bits_per_byte": bits} if number else {"text_bits_per_byte_before": bits}

    def _save(
        self,
        learner: Learner,
        report: TaskReport,
        commit: Commit,
        watch: Stopwatch,
        measured: dict[str, Any],
    ) -> None:
        self._keep_samples(learner, report)
        event = {
            "event": "task",
            "task": report.task,
            "losses": report.epochs,
            "replay_samples": len(report.replay),
            "seconds": {**report.seconds, **watch.seconds},
            "peak_memory_bytes": _peak_memory(learner),
            "state_bytes": sum(size for size, _ in commit.files.values()),
            **measured,
        }
        commit = replace(commit, log_bytes=self._append_log(event))
        self._store.commit(commit)
        self._commit = commit
        self._write_derived()

    def _write_derived(self) -> None:
        """matrix.csv and metrics.json follow from the commit; they are rewritten, never trusted."""
        for name, text in self._derived().items():
            write_text_atomically(self.directory / name, text)

    def _derived(self) -> dict[str, str]:
        return {"matrix.csv": self._commit.matrix, "metrics.json": json_text(self.metrics())}

    def _mend_derived(self) -> None:
        """Write what a process killed right after its commit had no time to write."""
        paths = {self.directory / name: text for name, text in self._derived().items()}
        if all(
            path.exists() and path.read_bytes() == text.encode() for path, text in paths.items()
        ):
            return
        # A second writer keeps these files up to date itself.
        with contextlib.suppress(InUseError), self._alone():
            self._write_derived()

    def _append_log(self, event: dict[str, Any]) -> int:
        return append(self.directory / "log.jsonl", json.dumps(event) + "\n")

    def _keep_samples(self, learner: Learner, report: TaskReport) -> None:
        if not (learner.writes and learner.config.sampling.keep):
            return
        lines = [
            json.dumps({"tokens": tokens[1:], "text": learner.backbone.decode(tokens[1:])})
            for tokens in report.replay
        ]
        path = self.directory / "replay" / f"task-{report.task:04d}.jsonl"
        write_text_atomically(path, "".join(line + "\n" for line in lines))

    def _ready_learner(self) -> Learner:
        if self._learner is None:
            backbone = load_backbone(self.config.backbone)
            self._identity.check(backbone.fingerprint)
            learner = Learner(self.config, backbone)
            learner.check(self.stream)
            restore_learner(self._store, learner, self._commit)
            self._learner = learner
        return self._learner

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the directory as its last commit left it; InUseError while another process does."""
        if self._held:
            yield
            return
        with alone(self.directory):
            found = self._store.last_commit()
            if found != self._commit:
                # Another process has moved on since this object was made.
                self._commit, self._learner = found, None
                self._check_learned_tasks(self.stream)
            self._store.sweep(found)
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def _cut_log(self) -> None:
        """Forget what was logged after the last commit."""
        path = self.directory / "log.jsonl"
        try:
            if path.exists() and path.stat().st_size > self._commit.log_bytes:
                os.truncate(path, self._commit.log_bytes)
        except OSError as error:
            raise HoldfastError(f"{path}: cannot be written ({error.strerror})") from error

    def _check_learned_tasks(self, stream: Stream) -> None:
        """The stream may be longer than what was learned, but must begin with it."""
        ours = [task.fingerprint for task in stream.tasks]
        for number, learned in enumerate(self._commit.tasks, start=1):
            if number <= len(ours) and ours[number - 1] != learned:
                raise HoldfastError(
                    f"{self.directory}: task {number} of this stream is not the task {number} "
                    "that was learned there; choose another directory, or give the same stream"
                )


def _emission(commit: Commit) -> dict[str, float] | None:
    """Share of answers that open a box: each task when just learned, and all tasks at the end."""
    if not commit.boxed:
        return None
    rows = list(commit.boxed.values())
    diagonal = sum(row[0] for row in rows) / sum(row[1] for row in rows)
    return {"diagonal": diagonal, "final": rows[-1][2] / rows[-1][3]}


def _peak_memory(learner: Learner) -> int:
    """Bytes: of the accelerator where there is one, otherwise of the whole process."""
    if learner.backbone.device.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated(learner.backbone.device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
