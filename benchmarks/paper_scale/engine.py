"""The paper's largest setting: a 4B backbone, 300 replay sequences, and one task after another."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from benchmarks.answering import NO_TOKEN
from benchmarks.committing import EngineDisk
from benchmarks.device import PhaseWatch, StepMarks, forget_peak, peak_bytes, timed
from benchmarks.twins import FULL, configuration, items, row_work
from holdfast.backbone.generation import sampling
from holdfast.backbone.generation.graph import GraphSteps
from holdfast.backbone.generation.steps import Steps
from holdfast.backbone.model import Backbone
from holdfast.evaluation import recall as recall_module
from holdfast.evaluation.recall import Recall, RecallCount
from holdfast.evaluation.verification import follow
from holdfast.learning import boundary
from holdfast.learning.boundary import TaskReport
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, Lesson, Sequences
from holdfast.learning.progress import Progress
from holdfast.prediction import work as task_work
from holdfast.prediction.shape import Shape, Work


@dataclass(frozen=True)
class Sizes:
    """The model's shape and the protocol's counts; vocabulary None: as many as the tokenizer has.

    length: tokens of a replay sequence after the replay token; answer: tokens of a generated
    answer; row_tasks: tasks in the row; compile: fuse the element-wise parts.
    """

    layers: int = 36
    width: int = 2560
    heads: int = 32
    kv_heads: int = 8
    head_width: int = 128
    feed: int = 9728
    vocabulary: int | None = 151_936
    rank: int = 32
    items: int = 100
    epochs: int = 10
    samples: int = 300
    length: int = 384
    answer: int = 256
    row_tasks: int = 50
    compile: bool = False


PAPER = Sizes()
TINY = Sizes(
    layers=2,
    width=64,
    heads=4,
    kv_heads=2,
    head_width=16,
    feed=128,
    vocabulary=None,
    rank=4,
    items=8,
    epochs=2,
    samples=16,
    length=12,
    answer=16,
    row_tasks=3,
)


def random_backbone(
    sizes: Sizes, tokenizer: Any, device: torch.device, dtype: torch.dtype
) -> Backbone:
    """Random weights of the shape, drawn where they are needed."""
    config = Qwen3Config(
        vocab_size=sizes.vocabulary or len(tokenizer) + 1,
        hidden_size=sizes.width,
        intermediate_size=sizes.feed,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        head_dim=sizes.head_width,
        max_position_embeddings=40_960,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), device:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return Backbone(model, tokenizer)


def scale_configuration(sizes: Sizes) -> RunConfig:
    return configuration(
        FULL,
        lora={"rank": sizes.rank, "alpha": 2.0 * sizes.rank},
        optim={"epochs": sizes.epochs},
        sampling={"samples": sizes.samples, "max_new_tokens": sizes.length},
        evaluation={"max_new_tokens": sizes.answer},
        backbone={"compile": sizes.compile},
    )


class Engine:
    """One learner at the paper's scale, phase by phase.

    watch: seconds and peak memory of the phases of the measured task; steps: milliseconds of its
    steps; report: of that task; recorded: whether sampling replayed recorded steps.
    """

    def __init__(self, sizes: Sizes, backbone: Backbone) -> None:
        self.sizes = sizes
        self.device = backbone.device
        self.config = scale_configuration(sizes)
        # Before the learner puts its own maps into the model.
        self.shape = Shape.of(backbone.model, self.config.lora, backbone.model.dtype.itemsize)
        self.learner = Learner(self.config, backbone)
        self.stream = items(max(3, sizes.row_tasks), sizes.items)
        self.recall = Recall(
            backbone, self.learner.template, self.config.evaluation, exact_case=True
        )
        self.watch = PhaseWatch(self.device)
        self.steps: list[float] = []
        self.report: TaskReport | None = None
        self.recorded: bool | None = None

    def warm_up(self) -> None:
        """Two short tasks, the second with its whole replay: every shape has passed once."""
        used: list[Steps] = []
        make = sampling.steps_for

        def kept(backbone: Backbone) -> Steps:
            used.append(make(backbone))
            return used[-1]

        for number, batches in ((0, 1), (1, 2)):
            sequences = self.sequences(number)[: batches * self.config.optim.batch_size]
            with _endless(self.learner.backbone), patch.object(sampling, "steps_for", kept):
                boundary.learn_task(self.learner, Lesson(sequences), Progress())
        self.recorded = all(isinstance(one, GraphSteps) and one.replays for one in used)

    def whole_task(self) -> float:
        """Seconds of the third task without its row and its commit."""
        marks = StepMarks(self.device)
        reports: list[TaskReport] = []
        sequences = self.sequences(2)
        with (
            _endless(self.learner.backbone),
            patch.object(boundary, "Stopwatch", lambda: self.watch),
        ):
            seconds = timed(
                self.device,
                lambda: reports.append(boundary.learn_task(self.learner, Lesson(sequences), marks)),
            )
        self.report, self.steps = reports[0], marks.milliseconds()
        lengths = {len(one) for one in self.report.replay}
        assert lengths == {self.sizes.length + 1}, "a replay sequence stopped early"
        assert len(self.report.replay) == self.sizes.samples
        return seconds

    def row(self) -> tuple[float, float]:
        """Seconds of a row for the first time, and once its questions are tokenised."""
        with self.watch.phase("row"):
            first, again = (timed(self.device, self._ask) for _ in range(2))
        return first, again

    def row_and_commit(self) -> float:
        """Seconds of a row while the third task's files are written, and of what is left then."""
        assert self.report is not None
        report = self.report
        with tempfile.TemporaryDirectory() as folder:
            disk = EngineDisk(Path(folder))

            def both() -> None:
                with disk.beside(self.learner, report):
                    self._ask()

            return timed(self.device, both)

    def _ask(self) -> None:
        """A row.

        Random weights never open a box. The pass is made in full, then every answer is taken to
        be the right one, as a model would have it that recalls everything.
        """

        def recalled(backbone: Any, prompts: Any, continuations: Any, **limits: Any) -> Sequences:
            follow(backbone, prompts, continuations, **limits)
            return [list(one) for one in continuations]

        with patch.object(recall_module, "follow", recalled):
            counts = self.recall.row(self.stream.tasks[: self.sizes.row_tasks])
        assert all(one.correct == one.items and one.decoded == 0 for one in counts)

    def undecided(self) -> tuple[float, int]:
        """Seconds for one task as the random model answers it, and how many had to be decoded."""
        found: list[RecallCount] = []
        task = self.stream.tasks[0]
        seconds = timed(self.device, lambda: found.append(self.recall.task(task)))
        return seconds, found[0].decoded

    def commit(self) -> tuple[float, int]:
        """Seconds and bytes of the third task's commit."""
        assert self.report is not None
        report = self.report
        with tempfile.TemporaryDirectory() as folder:
            disk = EngineDisk(Path(folder))
            forget_peak(self.device)
            seconds = timed(self.device, lambda: disk.commit(self.learner, report))
            self.watch.peaks["commit"] = peak_bytes(self.device)
            return seconds, disk.written

    def copy_bytes(self) -> float:
        """The dense matrices' share of a commit: they are copied once in many tasks."""
        dense = self.shape.layers * self.shape.dense
        return 4 * dense / self.config.keep.snapshot_every

    def given(self) -> tuple[Sequences, Sequences, int]:
        """The third task for the reference: its items, its replay and its number of steps.

        Where no replay was drawn, any tokens do: nobody judges what is learned.
        """
        sequences, optim = self.sequences(2), self.config.optim
        steps = optim.epochs * -(-len(sequences) // optim.batch_size)
        if self.report is not None:
            return sequences, self.report.replay, steps
        return sequences, [list(range(self.sizes.length + 1))] * self.sizes.samples, steps

    def sequences(self, index: int) -> Sequences:
        return self.learner.encode(self.stream.tasks[index])

    def sampling_work(self) -> list[Work]:
        return task_work.sampling(self.shape, [[0] * self.sizes.length] * self.sizes.samples)

    def teacher_work(self) -> list[Work]:
        return task_work.teacher(
            self.shape, [*self.sequences(2), *self._replayed(self.sizes.samples)]
        )

    def step_work(self) -> list[Work]:
        """A step of the full method; the items of a task are equally long."""
        size = self.config.optim.batch_size
        anchors = self.config.composition.anchors
        return task_work.step(self.shape, anchors, self.sequences(2)[:size], self._replayed(size))

    def row_work(self) -> list[Work]:
        tasks = self.stream.tasks[: self.sizes.row_tasks]
        return row_work(self.learner, self.shape, [item for t in tasks for item in t.items])

    def _replayed(self, count: int) -> Sequences:
        return [[0] * (self.sizes.length + 1)] * count


@contextmanager
def _endless(backbone: Backbone) -> Iterator[None]:
    """Within the block nothing that is sampled stops early: the worst case."""
    known: Any = backbone.stop_tokens
    backbone.stop_tokens = frozenset({NO_TOKEN})
    try:
        yield
    finally:
        backbone.stop_tokens = known
