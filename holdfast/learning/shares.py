"""How well the quadratic forms of ``kfac`` and ``pairs`` approximate what a task changes.

A run's next task is learned in memory; nothing is written. The first row is, per token of earlier
items (weighted as in the curvature) and of general text,

    tau^2 KL(model before || model after).

Each further row adds an approximation: second order only; no products of two positions of a
sequence; none of two layers, then none of two maps, at a position; S and G averaged apart, as in
Kronecker factors. The last rows are the forms that the method's anchors hold, taken in the past.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from holdfast.anchors.base import Step, Update, updates_since
from holdfast.anchors.divergences import divergence
from holdfast.anchors.kfac import quadratic_form
from holdfast.anchors.pairs import paired_changes
from holdfast.core.errors import HoldfastError
from holdfast.core.reporting import CountReport, WorkReport
from holdfast.learning.learner import Learner, TaskData
from holdfast.learning.progress import Progress, Stopwatch
from holdfast.learning.recorded import Recorded
from holdfast.learning.stream import fitting
from holdfast.learning.task import learn_task, open_task
from holdfast.learning.teacher import first_general_text, states_of
from holdfast.model.layers import layer_of
from holdfast.model.projection import Projection
from holdfast.streams import Stream, Task, load_stream

_SMALL = 0.1  # the fraction of the change at which only second order is left
_SEQUENCES_AT_ONCE = 16  # whose x and g are in memory together


@dataclass(frozen=True)
class ShareOfChange:
    """One row: the change, tau^2 KL per token, under one approximation, by column.

    Columns: ``answers`` to earlier items; ``text``: general text; ``both``: their mean, weighted by
    the numbers of items and of texts, as an anchor's form weighs them.
    """

    what: str
    values: dict[str, float]


@dataclass(frozen=True)
class _Probes:
    """Sequences on which a change is measured.

    weights: [n], of the predicted tokens, as in the curvature; teacher: [n, d], the hidden states
    of the model before the change.
    """

    data: TaskData
    weights: Tensor
    teacher: Tensor


def shares(recorded: Recorded, items: int, report: WorkReport) -> list[ShareOfChange]:
    """Learn the task after a run's last one in memory, and measure how it changes the model.

    items: how many earlier items, drawn at random, and how many general texts are probed at most;
    report: called with a phase, the units done and their total.
    Raises HoldfastError if the stream has no further task, or nothing was learned.
    """
    stream = _one_more(recorded)
    done = recorded.last.completed
    learned = [item for task in stream.tasks[:done] for item in task.items]
    chosen = random.Random(0).sample(learned, min(items, len(learned)))
    before, student = (recorded.learner(recorded.last) for _ in range(2))
    probes = {"answers": before.task_data([Task("probes", tuple(chosen))])}
    general = recorded.config.sampling.general
    if general:
        untouched = recorded.learner(recorded.boundary(0))
        if text := first_general_text(untouched, general):
            probes["text"] = TaskData(text[:items])

    rows, forms = shares_of(before, student, before.task_data(stream.tasks), probes, report)
    if "text" in probes:
        whole = len(learned) + general
        for row in rows:
            total = len(learned) * row.values["answers"] + general * row.values["text"]
            row.values["both"] = total / whole
    column = "both" if "text" in probes else "answers"
    rows += [ShareOfChange(f"what {name} holds", {column: form}) for name, form in forms.items()]
    return rows


def shares_of(
    before: Learner,
    student: Learner,
    data: TaskData,
    probes: Mapping[str, TaskData],
    report: WorkReport,
) -> tuple[list[ShareOfChange], dict[str, float]]:
    """Let the student learn a task; return the rows on all probes, and each anchor's form.

    before: a learner in the same state as the student, which does not learn the task.
    """
    trained = learn_task(student, data, _Reporting(report)).factors
    _, start = open_task(before, data, Stopwatch(), Progress())
    since = updates_since(start.parameters, before.workspace)
    forms = {}
    with torch.no_grad(), before.workspace.at(trained):
        updates = {
            name: Update(update.lora_B.clone(), update.lora_A.clone(), update.scale)
            for name, update in since().items()
        }
        for name, anchor in before.anchors:
            if anchor.needs.updates:
                nothing: Any = None
                step = Step(before.workspace.parameters(), nothing, None, updates)
                forms[name] = float(anchor.loss(anchor.begin(before.states[name], start), step))
    return _Change(before, updates, probes, report).rows(), forms


def _one_more(recorded: Recorded) -> Stream:
    """The tasks that a run has learned and one more; if need be ``stream.tasks`` is raised."""
    learned, config = recorded.last.tasks, recorded.config
    if not learned:
        raise HoldfastError(f"{recorded.directory}: has learned no task yet")
    tasks = config.stream.tasks
    if tasks is not None and tasks == len(learned):
        tasks += 1
    source = config.stream.model_copy(update={"tasks": tasks})
    try:
        stream = fitting(config, load_stream(source))
        tasks_left = {task.fingerprint: task for task in stream.tasks}
        earlier = [tasks_left.pop(fingerprint) for fingerprint in learned]
        return replace(stream, tasks=(*earlier, next(iter(tasks_left.values()))))
    except (HoldfastError, KeyError, StopIteration) as error:
        why = str(error) if isinstance(error, HoldfastError) else "its stream has no other"
        raise HoldfastError(
            f"{recorded.directory}: has learned {len(learned)} tasks, and what one more changes is "
            f"measured; {why}"
        ) from None


class _Change:
    """A change of every map, measured on probes."""

    def __init__(
        self,
        learner: Learner,
        updates: Mapping[str, Update],
        probes: Mapping[str, TaskData],
        report: WorkReport,
    ) -> None:
        self._learner, self._updates, self._report = learner, updates, report
        # A tenth of a change is too small for half precision.
        device = learner.backbone.device  # masters may lie in the host's memory
        dense = learner.workspace.dense().items()
        self._before = {name: matrix.to(device, copy=True) for name, matrix in dense}
        learner.backbone.model.to(torch.promote_types(learner.backbone.dtype, torch.float32))
        learner.workspace.set_dense(self._before)
        self._temperature = learner.config.curvature.temperature
        self._probes = {name: self._probes_of(data) for name, data in probes.items()}

    def rows(self) -> list[ShareOfChange]:
        rows: dict[str, dict[str, float]] = defaultdict(dict)
        for column, probes in self._probes.items():
            tell = partial(self._report, f"what changes in {column}")
            values = {
                "the change itself": self._divergence(probes, 1.0, tell),
                "to second order": self._divergence(probes, _SMALL, tell) / _SMALL**2,
                **self._paired(probes, tell),
                "Kronecker factors, taken now": self._kronecker(probes),
            }
            for what, value in values.items():
                rows[what][column] = value
        return [ShareOfChange(what, values) for what, values in rows.items()]

    def _probes_of(self, data: TaskData) -> _Probes:
        states = states_of(self._learner.backbone, data.sequences).states
        weights = torch.ones(len(states), dtype=torch.float64)
        if data.prompts:
            weights[~torch.cat(data.is_answer())] = self._learner.config.curvature.questions
        return _Probes(data, weights.to(states.device), states)

    @contextmanager
    def _changed(self, part: float) -> Iterator[None]:
        """Within the block the model has the fraction ``part`` of the change."""
        workspace = self._learner.workspace
        changed = {}
        for name, update in self._updates.items():
            dW = part * update.scale * (update.lora_B @ update.lora_A)
            turned = getattr(workspace.layers[name].module, "fan_in_fan_out", False)
            changed[name] = self._before[name] + (dW.t() if turned else dW)
        workspace.set_dense(changed)
        try:
            yield
        finally:
            workspace.set_dense(self._before)

    @torch.no_grad()
    def _divergence(self, probes: _Probes, part: float, tell: CountReport) -> float:
        """tau^2 KL per token under the fraction ``part`` of the change."""
        backbone, sequences = self._learner.backbone, probes.data.sequences
        with self._changed(part):
            states = states_of(backbone, sequences).states
        targets = torch.tensor([token for sequence in sequences for token in sequence[1:]])
        targets = targets.to(states.device)
        projection = Projection(backbone, states, probes.teacher, targets)
        total = 0.0
        for begin, end in projection.chunk_bounds():
            tokens = projection.chunk(states[begin:end], begin)
            before, after = tokens.teacher.double(), tokens.student.double()
            each = divergence("forward_kl", before, after, self._temperature)
            total += float((probes.weights[begin:end] * each).sum())
            tell(end, len(targets))
        return total / len(targets)

    def _paired(self, probes: _Probes, tell: CountReport) -> dict[str, float]:
        """For three groupings of maps, the sum over groups of 1/2 mean((sum of g^T dW x)^2)."""
        sequences, prompts = probes.data.sequences, probes.data.prompts
        layers: dict[int, list[str]] = defaultdict(list)
        for name in self._updates:
            layers[layer_of(name)].append(name)
        groups = {
            "positions apart": [list(self._updates)],
            "positions and layers apart": list(layers.values()),
            "positions and maps apart": [[name] for name in self._updates],
        }
        totals = dict.fromkeys(groups, 0.0)
        positions = 0
        for begin in range(0, len(sequences), _SEQUENCES_AT_ONCE):
            batch = slice(begin, begin + _SEQUENCES_AT_ONCE)
            count = sum(len(sequence) - 1 for sequence in sequences[batch])
            at = self._learner.positions_on(
                sequences[batch], f"shares {begin}", prompts[batch], count
            )
            each = {
                name: paired_changes(at.inputs, at.gradients, {name: update}).double()
                for name, update in self._updates.items()
            }
            for what, parts in groups.items():
                for names in parts:
                    together = torch.stack([each[name] for name in names]).sum(0)
                    totals[what] += float(0.5 * together.square().sum())
            positions += count
            tell(begin + len(sequences[batch]), len(sequences))
        return {what: total / positions for what, total in totals.items()}

    def _kronecker(self, probes: _Probes) -> float:
        data = probes.data
        curvature = self._learner.curvature_on(data.sequences, "shares", data.prompts)
        return float(quadratic_form(self._updates, curvature))


class _Reporting(Progress):
    """Passes the steps of a task on to a report."""

    def __init__(self, report: WorkReport) -> None:
        self._report = report

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        self._report(f"task {task}: {phase}", done, total)
