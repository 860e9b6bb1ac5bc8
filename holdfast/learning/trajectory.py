"""A trajectory: one configuration's run over a stream, stored in a directory.

``advance`` continues from the last commit on disk. Resuming an interrupted run, promoting a
candidate in a search and learning one more batch of facts are the same call.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

from holdfast.core.errors import HoldfastError, InUseError
from holdfast.core.file_checks import refuse_links, unfinished
from holdfast.core.files import (
    append,
    cut,
    json_text,
    lock_directory,
    make_folder,
    read_bytes,
    write_text_atomically,
)
from holdfast.core.notebook import caption
from holdfast.core.processes import is_rank_zero, run_on_rank_zero
from holdfast.evaluation.recall import Recall
from holdfast.evaluation.text import SETTINGS, bits_per_byte, everyday_passages, lengths
from holdfast.learning.config import RunConfig
from holdfast.learning.identity import Identity, decided
from holdfast.learning.learner import Learner
from holdfast.learning.progress import Progress, Stopwatch, peak_memory
from holdfast.learning.state import PARTS, Commit, Store, changes_of, restore_learner
from holdfast.learning.stream import fitting, items_in
from holdfast.learning.task import TaskReport, learn_task
from holdfast.model.backbone import Backbone
from holdfast.model.load import load_backbone
from holdfast.results import RecallMatrix, RunRecord, summarise
from holdfast.results.capability import (
    boundary_directory,
    measurement_settings,
    model_after,
    text_score,
    write_result,
)
from holdfast.results.items import SAMPLES_FOLDER, read_samples, write_row
from holdfast.streams import Stream, load_stream


class Trajectory:
    """One configuration's run over a stream, stored in one directory.

    horizon: tasks learned and committed; matrix: their recall.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: str | Path,
        *,
        stream: Stream | None = None,
        backbone: Backbone | None = None,
    ) -> None:
        """Open or prepare a directory; nothing is written before :meth:`advance`.

        stream, backbone: used instead of the ones that the configuration names. The backbone is
        changed in place, so it serves one trajectory; None: load one when it is needed.
        Raises HoldfastError when the directory belongs to another configuration (naming every
        field that differs), holds other files but no trajectory, or is damaged.
        """
        if not isinstance(config, RunConfig):
            raise HoldfastError(f"{config!r:.60} is no configuration; give a RunConfig")
        if not isinstance(stream, (Stream, NoneType)):
            raise HoldfastError(f"{stream!r:.60} is no stream; give what load_stream returns")
        self.directory = Path(directory)
        self.config = config = decided(config, self.directory)
        whole = stream if stream is not None else load_stream(config.stream)
        self.stream = fitting(config, whole, backbone)
        self._dropped = items_in(whole) - items_in(self.stream)
        self._store = Store(self.directory)
        self._learner: Learner | None = None
        self._given_backbone = backbone
        self._is_locked = False
        self._identity = Identity(
            self.directory,
            config,
            exact_case=self.stream.exact_case,
            tokenizer=backbone.tokenizer if backbone is not None else None,
        )
        self._identity.check_directory()
        self._commit = self._last_commit()
        self._check_learned_tasks()

    @property
    def horizon(self) -> int:
        """Tasks learned and committed."""
        return self._commit.completed

    @property
    def matrix(self) -> RecallMatrix:
        """Recall after every task at which it was measured."""
        return self._commit.matrix

    def __repr__(self) -> str:
        learned = f"{self.horizon} of {len(self.stream.tasks)} tasks of {self.stream.name}"
        method, seed = self.config.method, self.config.seed
        return f"Trajectory({method}, seed {seed}, {learned}, {str(self.directory)!r})"

    def _repr_html_(self) -> str:
        """For notebooks: a caption and the recall matrix."""
        return caption(repr(self)) + (self.matrix._repr_html_() if self.horizon else "")

    def metrics(self) -> dict[str, Any]:
        """The contents of metrics.json."""
        return summarise(self.matrix)

    def record(self) -> RunRecord:
        """The record in the directory, which has tables: losses by epoch, seconds by task.

        Raises HoldfastError before the first :meth:`advance`, and for a damaged file.
        """
        return RunRecord.open(self.directory)

    def advance(self, horizon: int | None = None, progress: Progress | None = None) -> RecallMatrix:
        """Learn until ``horizon`` tasks are learned (None: the whole stream); return the matrix.

        Tasks already learned are skipped. A process killed at any time loses at most the task in
        progress, and the continuation equals the uninterrupted run bit for bit.
        Processes that share the run call it together. Raises HoldfastError for a horizon beyond
        the stream, an item that is too long, a second writer, a full disk, or a loss that is not
        finite.
        """
        target = len(self.stream.tasks) if horizon is None else horizon
        if not (hasattr(target, "__index__") and 1 <= target <= len(self.stream.tasks)):
            raise HoldfastError(
                f"horizon {target} is not within the stream, which has {len(self.stream.tasks)} "
                f"tasks; give --tasks from 1 to {len(self.stream.tasks)}, or raise stream.tasks"
            )
        if target <= self.horizon:
            self._mend_derived()
            return self.matrix
        if not is_rank_zero():
            progress = Progress()  # only one process reports
        with self.writing():
            learner = self.learner()
            evaluation, exact_case = self.config.evaluation, self.stream.exact_case
            recall = Recall(learner.backbone, learner.template, evaluation, exact_case=exact_case)
            progress = progress or Progress()
            self._tell_overlong(learner, progress)
            while learner.completed < target:
                self._learn_one(learner, recall, target, progress)
        return self.matrix

    def _tell_overlong(self, learner: Learner, progress: Progress) -> None:
        template, items = self.config.template, items_in(self.stream)
        why = f"longer than {template.max_length} tokens (template.overlong: {template.overlong})"
        if self._dropped:
            progress.event(f"left out {self._dropped} of {items + self._dropped} items: {why}")
        if truncated := learner.check(self.stream):
            progress.event(f"truncated {truncated} of {items} items: {why}")

    def samples(self, task: int) -> list[str]:
        """The texts that the previous model wrote before a task; see ``sampling.keep``.

        Raises HoldfastError when they were not kept.
        """
        return read_samples(self.directory, task)

    def learner(self) -> Learner:
        """The learner after the last committed task: model, anchors and allocation rule."""
        if self._learner is None:
            backbone = self._given_backbone or load_backbone(self.config.backbone)
            if backbone.is_adapted:
                raise HoldfastError(
                    "the backbone that was given is in use by a trajectory, which changes it; load "
                    "it again, or give none"
                )
            self._identity.check(backbone.fingerprint)
            learner = Learner(self.config, backbone)
            restore_learner(self._store, learner, self._commit)
            learner.check(self.stream)
            self._learner = learner
        return self._learner

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the directory for the block, write its configuration and prepare the learner.

        :meth:`advance` does this itself; use it around several calls to keep other processes out
        between them. Raises HoldfastError when another process holds the directory, or it belongs
        to another configuration by now.
        """
        with self._locked():
            run_on_rank_zero(partial(self._begin, self.learner().backbone.fingerprint))
            try:
                yield
            except BaseException:
                self._learner = None  # it may be ahead of what is committed
                raise

    def _begin(self, fingerprint: str) -> None:
        self._identity.check(fingerprint)
        self._identity.write(self.stream, fingerprint)
        self._cut_log()

    def _learn_one(self, learner: Learner, recall: Recall, target: int, progress: Progress) -> None:
        watch = Stopwatch()
        number = learner.completed + 1
        measured = self._measured(learner, 0, watch) if number == 1 else {}
        task = self.stream.tasks[number - 1]
        matrix = self.matrix
        rows = self.config.evaluation.rows
        if rows != "horizon":
            # Measure forward transfer just before learning a task: later tasks may not exist yet.
            with watch.phase("evaluation"):
                unseen = recall.task(task)
            matrix = matrix.with_entry(number - 1, number, unseen.entry)
        progress.task_begun(number, target)
        data = learner.task_data(self.stream.tasks[:number])
        report = learn_task(learner, data, progress)
        with watch.phase("commit"):
            changes = changes_of(learner, report, self._commit)
        with ThreadPoolExecutor(max_workers=1) as executor:
            writing = executor.submit(changes.write, self._store) if is_rank_zero() else None
            tasks = self._tasks_to_ask(number, target)
            if tasks:
                # Evaluation does not change what the commit writes at the same time.
                with watch.phase("evaluation"):
                    row = recall.row(self.stream.tasks[tasks.start - 1 : number])
                counts = dict(zip(tasks, row, strict=True))
                entries = {task: count.entry for task, count in counts.items()}
                if self.config.evaluation.items and is_rank_zero():
                    recalled = {task: count.recalled for task, count in counts.items()}
                    write_row(self.directory, number, recalled)
                matrix = matrix.with_row(number, entries)
                progress.row_observed(
                    number, {task: entry.accuracy for task, entry in entries.items()}
                )
            if number == target or number % self.config.evaluation.capability_every == 0:
                measured |= self._measured(learner, number, watch)
            with watch.phase("commit"):
                files = writing.result() if writing else {}
        fingerprints = [*self._commit.tasks, task.fingerprint]
        commit = Commit(number, fingerprints, matrix, snapshot=changes.snapshot, files=files)
        progress.committed(self._save(learner, report, commit, watch, measured))
        progress.task_done(number, target, matrix)

    def _tasks_to_ask(self, number: int, target: int) -> range:
        """The tasks to evaluate after task ``number``: all so far, only itself, or none."""
        rows = self.config.evaluation.rows
        every = rows if isinstance(rows, int) else {"every": 1, "horizon": target}[rows]
        if number == target or number % every == 0:
            return range(1, number + 1)
        return range(0) if rows == "horizon" else range(number, number + 1)

    def _measured(self, learner: Learner, number: int, watch: Stopwatch) -> dict[str, Any]:
        """Measure the text suite after ``number`` tasks if configured; return the log's entry.

        ``holdfast capability`` would write the same file, so it finds this suite finished.
        """
        if "text" not in self.config.evaluation.capability:
            return {}
        model = learner.backbone.fingerprint
        if number:
            learned = [task.fingerprint for task in self.stream.tasks[:number]]
            model = model_after(self._identity.sha256(model), learned)
        with watch.phase("capability"):
            passages = everyday_passages()
            measured = lengths(learner.backbone, [passage.text for passage in passages])
            bits = bits_per_byte(measured)
            if is_rank_zero():
                items = [(passage.id, passage.text, "", dict[str, str]()) for passage in passages]
                question = measurement_settings(model, items, SETTINGS)
                place = boundary_directory(self.directory, number)
                refuse_links(self.directory, ("capability", f"capability/{place.name}"))
                write_result(place, "text", question, text_score(len(measured), bits))
        return {"text_bits_per_byte": bits} if number else {"text_bits_per_byte_before": bits}

    def _save(
        self,
        learner: Learner,
        report: TaskReport,
        commit: Commit,
        watch: Stopwatch,
        measured: dict[str, Any],
    ) -> dict[str, Any]:
        """Commit; return the task's line in the log."""
        event = {
            "event": "task",
            "task": report.task,
            "losses": report.epochs,
            "steps": report.steps,
            "replay_samples": len(report.replay),
            "seconds": {**report.seconds, **watch.seconds},
            "peak_memory_bytes": peak_memory(learner.backbone.device),
            "state_bytes": sum(size for size, _ in commit.files.values()),
            **measured,
        }

        def write() -> dict[str, Any]:
            self._keep_samples(learner, report)
            log_bytes = append(self.directory / "log.jsonl", json.dumps(event) + "\n")
            superseded = sorted(self._commit.files.keys() - commit.files.keys())
            complete = replace(commit, log_bytes=log_bytes, superseded=superseded)
            self._store.commit(complete)
            return complete.values()

        self._commit = self._store.parsed(run_on_rank_zero(write))
        run_on_rank_zero(self._write_derived)
        return event

    def _derived(self) -> dict[Path, str]:
        """The texts of the files that follow from the commit alone."""
        texts = {"matrix.csv": self.matrix.to_csv(), "metrics.json": json_text(self.metrics())}
        return {self.directory / name: text for name, text in texts.items()}

    def _write_derived(self) -> None:
        for path, text in self._derived().items():
            write_text_atomically(path, text)

    def _derived_is_whole(self) -> bool:
        if unfinished(self.directory):
            return False
        files = self._derived().items()
        return all(path.is_file() and path.read_bytes() == text.encode() for path, text in files)

    def _mend_derived(self) -> None:
        """Rewrite derived files that a process killed after its last commit left old or begun."""
        if not run_on_rank_zero(self._derived_is_whole):
            # If another process holds the directory, it writes these files itself.
            with contextlib.suppress(InUseError), self._locked():
                run_on_rank_zero(self._write_derived)

    def _keep_samples(self, learner: Learner, report: TaskReport) -> None:
        if not (learner.writes and learner.config.sampling.keep):
            return
        lines = [
            json.dumps({"tokens": tokens[1:], "text": learner.text_of(tokens[1:])})
            for tokens in report.replay
        ]
        path = make_folder(self.directory / SAMPLES_FOLDER) / f"task-{report.task:04d}.jsonl"
        write_text_atomically(path, "".join(line + "\n" for line in lines))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the directory and read its last commit; InUseError if another process holds it.

        If several processes share the run, the first locks it for all.
        """
        if self._is_locked:
            yield
            return
        with contextlib.ExitStack() as lock:
            run_on_rank_zero(
                lambda: lock.enter_context(lock_directory(self.directory, parts=PARTS))
            )
            commit = self._last_commit()
            if commit != self._commit:
                # Another process has committed since this object was made.
                self._commit, self._learner = commit, None
                self._check_learned_tasks()
            run_on_rank_zero(lambda: self._store.sweep(commit))
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def _last_commit(self) -> Commit:
        """The last commit on disk, as the first process reads it."""
        return self._store.parsed(run_on_rank_zero(lambda: self._store.last_commit().values()))

    def _cut_log(self) -> None:
        """Truncate log.jsonl to its length at the last commit; a shorter one to whole lines."""
        path = self.directory / "log.jsonl"
        if path.exists():
            committed = read_bytes(path)[: self._commit.log_bytes]
            cut(path, committed.rfind(b"\n") + 1)

    def _check_learned_tasks(self) -> None:
        """Raise HoldfastError if a learned task differs from the stream's task of that number."""
        ours = [task.fingerprint for task in self.stream.tasks]
        for number, learned in enumerate(self._commit.tasks, start=1):
            if number <= len(ours) and ours[number - 1] != learned:
                raise HoldfastError(
                    f"{self.directory}: task {number} of this stream is not the task {number} "
                    "that was learned there; choose another directory, or give the same stream"
                )
