"""The learner: a backbone, its adapters, and the anchors and allocation rule of one method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from holdfast.allocation.base import Allocation
from holdfast.allocation.base import State as AllocationState
from holdfast.anchors.base import Anchor, State, Text, Tree
from holdfast.anchors.replay import GenerativeReplay
from holdfast.core.seeding import generator
from holdfast.learning.config import RunConfig
from holdfast.model.backbone import Backbone
from holdfast.model.chat import template_for
from holdfast.model.curvature import CurvatureData, curvature_of, mean_inputs, positions_of
from holdfast.model.kronecker import KroneckerFactors, Positions
from holdfast.model.projection import token_cross_entropy
from holdfast.model.sequences import collate
from holdfast.streams import Item, Stream, Task

Sequences = list[list[int]]


@dataclass(frozen=True)
class TaskData:
    """The training data of one task.

    sequences: token ids, in task order; prompts: prompt length of each sequence in tokens, replay
    token included, empty if questions and answers are not told apart; past_items: number of items
    learned before; stored: sequences of earlier tasks to replay (reference point ``stored``).
    """

    sequences: Sequences
    prompts: Sequence[int] = ()
    past_items: int = 0
    stored: Sequences = field(default_factory=list)

    @property
    def fraction(self) -> float:
        """The task's items as a fraction of all items learned, its own included; in (0, 1]."""
        return len(self.sequences) / (len(self.sequences) + self.past_items)

    def is_answer(self) -> list[Tensor]:
        """For each sequence, which of its n predicted tokens belong to the answer: [n] bool."""
        return [
            torch.arange(1, len(sequence)) >= prompt
            for sequence, prompt in zip(self.sequences, self.prompts, strict=True)
        ]


class Learner:
    """A model that learns tasks by one method; ``holdfast.learning.task`` has the operations.

    anchors: (name, anchor) in canonical order; states: each anchor's state, by name; completed:
    number of tasks learned.
    """

    def __init__(self, config: RunConfig, backbone: Backbone) -> None:
        """Prepare ``backbone`` for the method, in place; it must not be shared."""
        self.config = config
        self.backbone = backbone
        self.template = template_for(config.template, backbone)
        self.completed = 0
        names = config.composition.anchors
        self.anchors: list[tuple[str, Anchor]] = list(zip(names, config.anchors(), strict=True))
        self.states: dict[str, State] = {name: {} for name in names}
        self.allocation: Allocation = config.allocation()
        self.allocation_state: AllocationState = {}
        if config.has_replay_token:
            backbone.add_replay_token()
        seed_row = self.replay is not None and self.replay.trainable_seed_row
        checkpointing = config.backbone.checkpointing
        backbone.adapt(config.lora, seed_row=seed_row, checkpointing=checkpointing)
        self.workspace = backbone.workspace
        if self.allocation.after_task != "keep":
            self.workspace.check_mergeable()

    @property
    def replay(self) -> GenerativeReplay.Config | None:
        """The settings of replay; None if the method replays nothing."""
        return self.config.replay if self.needs("replay") else None

    def needs(self, what: str) -> bool:
        """Whether an anchor needs ``what``, a field of ``Needs``."""
        return any(getattr(anchor.needs, what) for _, anchor in self.anchors)

    @property
    def learns_answers_alone(self) -> bool:
        """Whether the current loss covers answer tokens only: in the chat form, unless the model
        has to write whole sequences itself, or stored ones are replayed.
        """
        rehearses = self.writes or self.replay is not None
        return self.config.template.form == "chat" and not rehearses

    @property
    def writes(self) -> bool:
        """Whether replay sequences are sampled from the model before every task but the first."""
        needs = [anchor.needs for _, anchor in self.anchors]
        return any((need.replay and not need.stored) or need.curvature for need in needs)

    def general(self) -> Text | None:
        """An anchor's general text; None if no anchor holds any."""
        texts = (anchor.text(self.states[name]) for name, anchor in self.anchors)
        return next(filter(None, texts), None)

    def encode(self, task: Task) -> Sequences:
        """The task's training sequences, in task order."""
        return [self._encoded(item) for item in task.items]

    def _encoded(self, item: Item) -> list[int]:
        backbone = self.backbone
        return self.template.encode(
            item, backbone.tokenizer, backbone.seed_token, backbone.eos_token
        )

    def text_of(self, tokens: list[int]) -> str:
        """The text of a sequence, in the paper's form; tokens: without the replay token."""
        if self.template.form.boxed:
            return self.backbone.decode(tokens)
        text: str = self.backbone.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
        return self.template.as_paper(text)

    def task_data(self, tasks: Sequence[Task]) -> TaskData:
        """The training data of the last task, learned after the others; with ``joint`` of all."""
        *earlier, task = tasks
        needs = [anchor.needs for _, anchor in self.anchors]
        if any(need.joint for need in needs):
            items = [item for each in tasks for item in each.items]
            earlier, task = [], Task(task.name, tuple(items))
        tokenizer, seed = self.backbone.tokenizer, self.backbone.seed_token
        prompts = [len(self.template.encode_prompt(item, tokenizer, seed)) for item in task.items]
        count = max((need.stored for need in needs), default=0)
        past_items = sum(len(each.items) for each in earlier)
        return TaskData(self.encode(task), prompts, past_items, self._stored(earlier, count))

    def _stored(self, earlier: Sequence[Task], count: int) -> Sequences:
        """Draw ``count`` items of earlier tasks uniformly, by lowest random key; encode them."""
        if not count:
            return []
        keys = [
            torch.rand(len(task.items), generator=generator(self.config.seed, "stored", number))
            for number, task in enumerate(earlier, start=1)
        ]
        chosen = torch.cat([torch.empty(0), *keys]).argsort(stable=True)[:count].tolist()
        items = [item for task in earlier for item in task.items]
        return [self._encoded(items[index]) for index in sorted(chosen)]

    def check(self, stream: Stream) -> int:
        """How many items of the stream are truncated; HoldfastError if none may be.

        Raises HoldfastError also if an answer of a task still to be learned is too long to recall.
        """
        backbone = self.backbone
        return self.template.check_stream(
            stream,
            backbone.tokenizer,
            backbone.seed_token,
            backbone.eos_token,
            longest_answer=self.config.evaluation.max_new_tokens,
            learned=self.completed,
            context=backbone.positions,
        )

    def sequence_gradient(self, data: TaskData, index: int) -> Tree:
        """The gradient of the mean cross-entropy of sequence ``index``, without dropout.

        The mean is over the tokens that training has a loss on: all, or the answer's.
        """
        batch = collate([data.sequences[index]], self.backbone.device)
        with self.backbone.learning():
            passed = self.backbone.forward_pass(batch)
            (projection,) = passed.projections
            weights = None
            if self.learns_answers_alone:
                weights = projection.only(data.is_answer()[index])
            return passed.gradient(projection.mean(token_cross_entropy, weights))

    def curvature_on(
        self, sequences: Sequences, purpose: str, prompts: Sequence[int] = ()
    ) -> dict[str, KroneckerFactors]:
        """Kronecker factors of every adapted map of the current model on ``sequences``.

        purpose: names the draws; prompts: tokens of each sequence's question, empty if unknown.
        """
        with self.backbone.learning():
            return curvature_of(self._curvature_data(sequences, purpose, prompts))

    def positions_on(
        self, sequences: Sequences, purpose: str, prompts: Sequence[int], count: int
    ) -> Positions:
        """x and g of every adapted map at ``count`` positions; see :meth:`curvature_on`."""
        with self.backbone.learning():
            return positions_of(self._curvature_data(sequences, purpose, prompts), count)

    def _curvature_data(
        self, sequences: Sequences, purpose: str, prompts: Sequence[int]
    ) -> CurvatureData:
        draw = (self.config.seed, f"{purpose} labels", self.completed + 1)
        labels = [
            [-100] * prompt + sequence[prompt:]
            for sequence, prompt in zip(sequences, prompts or [0] * len(sequences), strict=True)
        ]
        layers, settings = self.workspace.layers, self.config.curvature
        return CurvatureData(self.backbone, layers, sequences, settings, draw, labels)

    def mean_inputs(self, sequences: Sequences, limit: int) -> dict[str, Tensor]:
        """Each adapted map's mean input [d_in] over the first ``limit`` (N_H) sequences.

        Source: eq. app-osrm-feature.
        """
        size, pad = self.config.optim.batch_size, self.backbone.pad_token
        with self.backbone.answering():
            return mean_inputs(self.backbone, self.workspace.layers, sequences[:limit], size, pad)
