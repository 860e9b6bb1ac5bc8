"""Anchors and an allocation rule for your own training loop.

:class:`Anchored` holds the method of a PEFT model and calls its functions in the order of
alg. app-task-boundary; the loop, the optimiser and the data remain yours::

    anchored = Anchored(model, tokenizer, anchors=["kfac", "replay"], allocation="merge")
    for task in tasks:
        anchored.begin(task)                        # token ids of its sequences
        for batch in loader(task):
            anchored.loss(batch).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            with anchored.step():
                optimizer.step()
            optimizer.zero_grad()
        anchored.end()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from holdfast.allocation import Closing, Opening
from holdfast.anchors import Change, State, Step, TaskEnd, TaskStart
from holdfast.core.errors import HoldfastError
from holdfast.integrations import state
from holdfast.integrations.boundary import (
    curvature_on,
    positions_on,
    samples_before,
    sequence_gradient,
    text_before,
    written_by,
)
from holdfast.integrations.method import (
    Settings,
    allocation_of,
    anchors_of,
    built,
    changes_gradient,
    check_alone,
    check_settings,
    count_of,
    first_token,
    given_beginning,
    stop_tokens,
)
from holdfast.integrations.past import remember, warn_of_a_lost_past
from holdfast.integrations.reader import Reader, keep_buffers, loss_of, tensors_of
from holdfast.integrations.task import Task, TaskSequences, is_accumulating
from holdfast.learning.training import compose
from holdfast.model.curvature import mean_inputs
from holdfast.model.generation.sampling import Sampling
from holdfast.model.kronecker import CurvatureConfig
from holdfast.model.lora import LoraWorkspace
from holdfast.model.projection import Projection


class Anchored:
    """The method of a PEFT model: what a training loop calls, and all that it has to save.

    completed: tasks learned; terms: each term of the last minibatch, unweighted, for a log;
    begin_with, stop_tokens: tokens that begin and end a replay sample; given_begin: those before
    the random token of a general text.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        anchors: Sequence[str] | Mapping[str, Settings | None] = (),
        allocation: str | Mapping[str, Settings | None] = "shared",
        sampling: Settings | None = None,
        curvature: Settings | None = None,
        begin_with: Sequence[int] | Literal["chat"] | None = None,
        batch_size: int = 8,
        seed: int = 42,
    ) -> None:
        """Check the model; its weights are not changed.

        model: a PEFT model with one active LoRA adapter, in one process; learning starts from its
        factors. anchors: names, or settings by name, plug-ins included; allocation: a name, or one
        name with its settings; sampling, curvature: settings as in a run's configuration;
        begin_with: token ids that every sample begins with, ``chat`` for those of the template; by
        default a replay sample begins with the model's first token; batch_size: samples in a step.
        Raises HoldfastError if the model or a setting is not supported.
        """
        check_alone()
        self.workspace = LoraWorkspace(model)
        self.reader = Reader(model)
        self.anchors = anchors_of(anchors)
        self.allocation_name, self.allocation = allocation_of(allocation)
        self.sampling = built(Sampling, sampling, "sampling")
        self.curvature = built(CurvatureConfig, curvature, "curvature")
        self.tokenizer = tokenizer
        self.seed, self.batch_size = seed, count_of("batch_size", batch_size)
        self.given_begin = given_beginning(begin_with, tokenizer, self.reader.vocabulary)
        self.begin_with = self.given_begin or first_token(tokenizer, self.reader.base)
        self.stop_tokens = stop_tokens(tokenizer, self.reader.base)
        self.completed = self.past_items = 0
        self.states: dict[str, State] = {name: {} for name in self.anchors}
        check_settings(self.sampling, self.anchors)
        if self.needs("fit_gradient"):
            keep_buffers()
        if self.allocation.after_task != "keep":
            self.workspace.check_mergeable()
        self.allocation_state: Mapping[str, Tensor] = {}
        self.task: Task | None = None
        self.terms: dict[str, Tensor] = {}

    @property
    def replay(self) -> Any:
        """The settings of the data anchor; None if the method has none."""
        data = [anchor for anchor in self.anchors.values() if anchor.needs.replay]
        return data[0].config if data else None

    def needs(self, what: str) -> bool:
        """Whether an anchor needs ``what``, a field of ``Needs``."""
        return any(getattr(anchor.needs, what) for anchor in self.anchors.values())

    def begin(
        self, sequences: Iterable[Sequence[int]], labels: Iterable[Sequence[int]] | None = None
    ) -> None:
        """Begin the next task, or continue the unfinished task of a loaded state.

        sequences: token ids of every training sequence, in task order; labels: of the same shape,
        -100 at tokens that are not trained on. Raises HoldfastError for an empty task, for anything
        but token ids, and if another task is not ended.
        """
        check_alone()  # again: Lightning and accelerate may have started processes since
        given = TaskSequences.of(sequences, labels)
        self.workspace.check_active()
        state.to_device(self)
        if self.task is not None:
            if self.task.sequences is not None and not self.task.interrupted:
                raise HoldfastError(f"task {self.task.number} is not ended; call end() first")
            self.task.go_on(given)
            return
        warn_of_a_lost_past(self)
        number = self.completed + 1
        self.allocation_state = self.allocation.begin(
            self.allocation_state, self.workspace, Opening(number, self.seed)
        )
        replay, general = samples_before(self, number)
        task = Task(self, number, self.workspace.copied(), replay, given.fingerprint)
        written = written_by(self, replay if self.needs("curvature") else [], general)
        curvature = positions = None
        if written.ids and (self.needs("prior_curvature") or self.needs("curvature")):
            draw = (self.seed, "curvature labels", number)
            curvature = curvature_on(self, written, draw)
        if general:
            draw = (self.seed, "positions labels", number)
            positions = partial(positions_on, self, written_by(self, [], general), draw)
        start = TaskStart(
            number,
            task.start,
            len(given.ids),
            self.past_items,
            curvature,
            self.sampling.general,
            positions,
            partial(text_before, self) if number == 1 else None,
        )
        self.states = {
            name: anchor.begin(self.states[name], start) for name, anchor in self.anchors.items()
        }
        task.go_on(given)
        # Last, so that an interrupted call can be made again.
        self.task = task
        self.workspace.given_start_is_used()

    def loss(
        self,
        batch: Mapping[str, Any],
        compute: Callable[[Any, Mapping[str, Any]], Tensor] | None = None,
        *,
        accumulation: int = 1,
    ) -> Tensor:
        """The whole objective on a collated batch, a scalar, to call ``backward`` on.

        compute: a function of model and batch that returns the loss to which the anchors' terms are
        added, by default the model's own; accumulation: minibatches per step; as usual, the caller
        divides the returned value by it. Raises HoldfastError if it is less than 1, if no task is
        begun, and for a batch or a loss that is not supported.
        """
        fraction = 1 / count_of("accumulation", accumulation)
        teacher = self.teacher_states(batch)
        with self.reader.capturing():
            loss = loss_of(self.reader.model, batch, compute)
        return self.objective(batch, loss, teacher, fraction=fraction)

    def teacher_states(self, batch: Mapping[str, Any]) -> Tensor | None:
        """The previous model's last hidden states [batch, length, d]; None if no anchor needs them.

        Call it before the forward pass on the batch.
        """
        task, _ = self._open(), tensors_of(batch)
        if task.replay and self.replay is not None:
            _ = task.replay_states  # exchanges the factors, so not after the forward pass
        if self.completed == 0 or not self.needs("teacher"):
            return None
        return task.previous.states(batch)

    def objective(
        self,
        batch: Mapping[str, Any],
        loss: Tensor,
        teacher: Tensor | None,
        *,
        fraction: float,
        scaled: bool = False,
    ) -> Tensor:
        """Add the anchors' terms to the loss of one minibatch; return the objective, a scalar.

        loss: computed within ``reader.capturing()``; teacher: from :meth:`teacher_states`;
        fraction: 1 / minibatches per step; scaled: the loss has this factor already (as a mean over
        the whole step's tokens has), and the terms get it too; otherwise the caller multiplies.
        Source: eq. app-fit, eq. app-objective.
        """
        task, factor = self._open(), fraction if scaled else 1.0
        task.acted = True
        parameters = self.workspace.parameters()
        hidden = self.reader.captured(tensors_of(batch)[0])
        current = self._projection(batch, hidden, teacher)
        replay, general = self._replayed(task), self._general(task)
        updates = task.updates() if self.needs("updates") else {}
        step = Step(parameters, current, replay, updates, general)
        self.terms = {"own_loss": loss.detach() / factor}
        anchors = self.anchors.items()
        weights = [anchor.strength(self.states[name]) for name, anchor in anchors if anchor.in_fit]
        weight = weights[0] if replay is not None else 0.0
        fit, rest, terms = compose(
            (1 - weight) * loss / factor,
            step,
            anchors,
            self.states,
            replay_weight=weight,
            replay_counts_for_path=self.allocation.replay_counts_for_path,
        )
        self.terms |= terms
        path = self._fit_gradient(task, fit, fraction) if self.needs("fit_gradient") else None
        whole = fit if rest is None else fit + rest
        with torch.autocast(self.reader.device.type, enabled=False):
            penalty = self.allocation.penalty(self.allocation_state, self.workspace)
        if penalty is not None:  # in every minibatch of a step: once in their mean (app:olora)
            whole = whole + penalty
        whole = factor * whole
        if path is not None:  # so a minibatch without a backward pass is no part of a step
            whole.register_hook(lambda _: task.add_gradient(path))
        return whole

    def _fit_gradient(self, task: Task, path: Tensor, scale: float) -> dict[str, Tensor]:
        parameters = self.workspace.parameters()
        task.forget_discarded(parameters)
        gradients: Sequence[Tensor | None] = torch.autograd.grad(
            path, list(parameters.values()), retain_graph=True, allow_unused=True
        )
        if all(gradient is None for gradient in gradients):
            raise HoldfastError(
                "si needs the gradient of the loss alone, which reentrant checkpointing cannot "
                "give; set gradient_checkpointing_kwargs={'use_reentrant': False}"
            )
        # A layer that the minibatch did not pass, such as an expert, has none.
        return {
            name: torch.zeros_like(factor) if gradient is None else scale * gradient
            for (name, factor), gradient in zip(parameters.items(), gradients, strict=True)
        }

    def _projection(
        self, batch: Mapping[str, Any], hidden: Tensor, teacher: Tensor | None
    ) -> Projection:
        """The predicted tokens of a batch that are trained on."""
        ids, real, trained, _ = tensors_of(batch)
        chosen = trained[:, 1:] & real[:, :-1]
        states = None if teacher is None else teacher[:, :-1][chosen]
        return Projection(self.reader, hidden[:, :-1][chosen], states, ids[:, 1:][chosen])

    def _replayed(self, task: Task) -> Projection | None:
        """The student's predictions on the next replay minibatch; None if there is no replay."""
        if self.replay is None or not task.replay:
            return None
        chosen = task.next_replay()
        teacher = torch.cat([task.replay_states[index] for index in chosen])
        return self.reader.written([task.replay[i] for i in chosen], teacher, len(self.begin_with))

    def _general(self, task: Task) -> Projection | None:
        """The student's predictions on the next general minibatch; None if no anchor has text."""
        texts = (anchor.text(self.states[name]) for name, anchor in self.anchors.items())
        task.text = task.text or next(filter(None, texts), None)
        if (text := task.text) is None:
            return None
        chosen = task.next_text()
        return self.reader.written([text.sequences[i] for i in chosen], text.states.rows(chosen))

    def adjust_gradient(self) -> None:
        """Let the allocation rule change the gradient; call this before it is clipped."""
        self._open().adjusted = True
        self.allocation.adjust_gradient(self.allocation_state, self.workspace)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Make the optimiser's step within this block: the anchors compare before and after."""
        self.before_step()
        try:
            yield
            self.after_step()
        finally:
            self._open().before = None  # an interrupted step is none

    def before_step(self) -> None:
        """Call this after clipping, just before ``optimizer.step()``, which accelerate may skip."""
        task = self._open()
        if changes_gradient(self.allocation) and not (task.adjusted or is_accumulating()):
            raise HoldfastError(
                f"{self.allocation_name} changes the gradient; call adjust_gradient() before it "
                "is clipped"
            )
        task.adjusted = False
        if self.needs("fit_gradient"):
            task.before = self.workspace.copied()
        elif self.anchors:
            task.check_anchors_acted(self.workspace.parameters().values())

    def after_step(self) -> None:
        """Call this just after ``optimizer.step()``."""
        task = self._open()
        if task.before is None:
            return
        after = {name: factor.detach() for name, factor in self.workspace.parameters().items()}
        if all(factor.equal(task.before[name]) for name, factor in after.items()):
            task.before = None
            if not is_accumulating():  # a skipped step, whose gradient may be infinite
                task.fit_gradient = {}
            return
        change = Change(task.step_gradient(), task.before, after)
        for name, anchor in self.anchors.items():
            self.states[name] = anchor.after_step(self.states[name], change)
        task.before, task.fit_gradient = None, {}

    def end(self) -> None:
        """End the task: the anchors in the old coordinates, then the allocation rule.

        Source: alg. app-task-boundary.
        """
        task = self._open()
        self.workspace.check_active()
        sequences = task.ended()
        draw = (self.seed, "own curvature labels", task.number)
        position_draw = (self.seed, "own positions labels", task.number)
        end = TaskEnd(
            task.number,
            self.workspace.copied(),
            len(sequences.ids),
            partial(sequence_gradient, self, sequences),
            cache(lambda: curvature_on(self, sequences, draw)),
            task.updates() if self.needs("updates") else {},
            partial(positions_on, self, sequences, position_draw),
        )
        states = {name: anchor.end(self.states[name], end) for name, anchor in self.anchors.items()}

        def inputs(limit: int) -> dict[str, Tensor]:
            with self.reader.answering():
                chosen = sequences.ids[:limit]
                return mean_inputs(self.reader, self.workspace.layers, chosen, self.batch_size)

        closing = Closing(task.number, inputs)
        observed = self.allocation.end(self.allocation_state, closing)
        self.allocation_state = self.allocation.retire(observed, self.workspace)
        self.states = states
        self.completed, self.past_items = task.number, self.past_items + len(sequences.ids)
        self.task = None
        remember(self)

    def save(self, directory: str | Path) -> None:
        """Write the whole state to ``directory``/holdfast.safetensors, atomically.

        Call it between two tasks or two steps. The file holds the factors too and, if the rule
        merges, the dense matrices. Raises HoldfastError if it cannot be written.
        """
        state.save(self, Path(directory))

    def load(self, directory: str | Path) -> None:
        """Restore the model, the anchors and the rule from a saved state; :meth:`begin` continues.

        Raises HoldfastError if it is missing, damaged, or of another method or model.
        """
        state.load(self, Path(directory))

    def _open(self) -> Task:
        if self.task is None or self.task.sequences is None:
            raise HoldfastError("no task is begun; call begin(sequences) first")
        return self.task
