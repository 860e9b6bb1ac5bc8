"""The learner: a model, its adapted maps, the anchors and the allocation rule of one method."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from holdfast.allocation.base import Allocation, MeanInputs
from holdfast.anchors.base import Anchor
from holdfast.anchors.generative_replay import GenerativeReplay
from holdfast.backbone.adapters import Adapters
from holdfast.backbone.load import Backbone
from holdfast.backbone.projection import Projection
from holdfast.backbone.sequences import Batch, TokenStates, collate
from holdfast.learning.config import RunConfig
from holdfast.learning.objective import token_cross_entropy
from holdfast.streams import Stream, Task, Template

Sequences = list[list[int]]


class Learner:
    """What learning a task works on; :mod:`holdfast.learning.boundary` says in which order.

    anchors: (name, anchor) in canonical order; completed: tasks learned so far.
    """

    def __init__(self, config: RunConfig, backbone: Backbone) -> None:
        """Prepare a backbone for the method; it is changed in place and must not be shared."""
        self.config = config
        self.backbone = backbone
        self.template = Template(config.template)
        self.completed = 0
        names = config.composition.anchors
        self.anchors: list[tuple[str, Anchor]] = list(zip(names, config.anchors(), strict=True))
        self.allocation: Allocation = config.allocation()
        seed_row = None
        if self.replay is not None:
            token = backbone.add_replay_token()
            seed_row = token if self.replay.trainable_seed_row else None
        self.adapters = Adapters(backbone.model, config.lora, backbone.head, seed_row=seed_row)

    @property
    def replay(self) -> GenerativeReplay.Config | None:
        """The settings of the data anchor; None when the method has none."""
        needed = any(anchor.needs.replay for _, anchor in self.anchors)
        return self.config.data if needed else None

    @property
    def needs_teacher(self) -> bool:
        """Whether an anchor compares with the previous model on the task's own sequences."""
        return any(anchor.needs.teacher for _, anchor in self.anchors)

    @property
    def needs_path(self) -> bool:
        """Whether an anchor records the gradient of the fit term."""
        return any(anchor.needs.fit_gradient for _, anchor in self.anchors)

    def encode(self, task: Task) -> Sequences:
        """The task's training sequences, in task order."""
        backbone = self.backbone
        return [
            self.template.encode(item, backbone.tokenizer, backbone.seed_token, backbone.eos_token)
            for item in task.items
        ]

    def check(self, stream: Stream) -> None:
        """Raise HoldfastError when an answer of the stream would be cut by truncation."""
        backbone = self.backbone
        self.template.encode_stream(
            stream, backbone.tokenizer, backbone.seed_token, backbone.eos_token
        )

    def collate(self, sequences: Sequence[Sequence[int]]) -> Batch:
        """Pad sequences into one batch on the model's device."""
        return collate(sequences, self.backbone.pad_token, self.backbone.device)

    def project(
        self, batch: Batch, teacher: TokenStates | None = None, rows: Sequence[int] = ()
    ) -> Projection:
        """Run the student on a batch; its predicted tokens, beside the teacher's states if any.

        rows: which sequences of ``teacher`` the batch holds, in order.
        """
        hidden = batch.select(self.backbone.hidden(batch.ids))
        known = None if teacher is None else teacher.rows(rows)
        return Projection(self.backbone, hidden, known, batch.targets)

    def sequence_gradient(self, sequences: Sequences, index: int) -> Tensor:
        """The gradient [P] of one sequence's causal loss, in evaluation mode."""
        self.adapters.training(None)
        gradient = torch.zeros_like(self.adapters.gradient)
        self.adapters.accumulate_into(gradient)
        loss = self.project(self.collate([sequences[index]])).mean(token_cross_entropy)
        loss.backward()
        self.adapters.accumulate_into(self.adapters.gradient)
        return gradient

    def mean_inputs(self, sequences: Sequences) -> MeanInputs:
        """A function of N_H: the mean input of every adapted map, over the first N_H sequences.

        Padded positions count, every batch has the same weight.  Source: eq. app-osrm-feature.
        """
        return partial(self._mean_inputs, sequences)

    @torch.no_grad()
    def _mean_inputs(self, sequences: Sequences, limit: int) -> dict[str, Tensor]:
        size = self.config.optim.batch_size
        chosen = sequences[:limit]
        self.adapters.evaluating()
        with self.adapters.recording() as seen:
            for start in range(0, len(chosen), size):
                batch = self.collate(chosen[start : start + size])
                self.backbone.hidden(batch.ids, batch.mask.long())
        return {
            name: torch.stack(
                [x.flatten(0, -2).to(self.adapters.dtype).mean(0) for x in inputs]
            ).mean(0)
            for name, inputs in seen.items()
        }
