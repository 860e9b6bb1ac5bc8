"""What a run does: the numbers of its sequences, minibatches and samples, and its passes.

The passes use a model of the run's shape. Their seconds are measured on a device with random
weights, their memory is counted on fake tensors, which have shapes and no values. Neither needs the
weights of the model.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import checkpoint

from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.model.chat import template_of
from holdfast.model.checkpointing import checkpoint_blocks
from holdfast.model.load import load_shape, multiplies_in_groups
from holdfast.model.lora import with_lora
from holdfast.streams import Stream

_READ = 2000  # most items whose tokens are counted
_LOGITS_AT_ONCE = 1 << 24  # logits that a loss computes at a time, and again in backward


class Grid(NamedTuple):
    """The shape of a batch: its sequences, and the tokens of each, padding included."""

    rows: int
    length: int


@dataclass(frozen=True)
class Workload:
    """The size of a run. tasks: of the stream; items: of its largest task; lengths: tokens of its
    sequences, ascending; mean: their mean before truncation; answer: mean tokens of an answer.
    """

    config: RunConfig
    tasks: int
    items: int
    lengths: tuple[int, ...]
    mean: float
    answer: float

    @classmethod
    def of(cls, config: RunConfig, stream: Stream, tokenizer: Any) -> Workload:
        """The work on a stream; lengths are those of evenly spaced items, if it has many."""
        all_items = [item for task in stream.tasks for item in task.items]
        items = all_items[:: -(-len(all_items) // _READ)]
        template = template_of(config.template, tokenizer)
        extra = int(config.has_replay_token) + int(template.form.boxed and template.config.has_end)
        text_lengths, prompt_lengths = (
            [len(ids) + extra for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
            for texts in ([*map(template.text, items)], [*map(template.prompt, items)])
        )
        return cls(
            config=config,
            tasks=len(stream.tasks),
            items=max(len(task.items) for task in stream.tasks),
            lengths=tuple(sorted(min(count, config.template.max_length) for count in text_lengths)),
            mean=statistics.fmean(text_lengths),
            answer=statistics.fmean(text_lengths) - statistics.fmean(prompt_lengths),
        )

    def needs(self, need: str) -> int:
        """The highest value of a field of ``Needs`` among the method's anchors, 0 without any."""
        return max(
            (int(getattr(anchor.needs, need)) for anchor in self.config.anchors()), default=0
        )

    @property
    def kfac(self) -> bool:
        """Whether S and G are computed."""
        return "kfac" in self.config.composition.anchors

    @property
    def positions(self) -> int:
        """Positions that the paired curvature anchor keeps."""
        config = self.config
        if "pairs" not in config.composition.anchors:
            return 0
        return config.pairs.positions + config.pairs.general * bool(config.sampling.general)

    @property
    def writes(self) -> int:
        """How many sequences are sampled before every task but the first."""
        curvature, sampling = self.needs("curvature"), self.config.sampling
        draws = curvature or (self.needs("replay") and not self.needs("stored"))
        return sampling.samples * draws + sampling.general * curvature

    @property
    def prior(self) -> int:
        """How many general texts are sampled before the first task for curvature."""
        needed = map(self.needs, ("curvature", "prior_curvature", "positions"))
        return self.config.sampling.general * any(needed)

    @property
    def first_writes(self) -> int:
        """How many sequences are sampled before the first task."""
        return self.prior + self.general.rows

    def curvature_tokens(self, task: int) -> float:
        """Tokens read for curvature: of samples before the task, and of its own after it."""
        length, own = self.config.sampling.max_new_tokens + 1, self.items * self.mean
        prior = self.prior * length * (task == 1)
        after = self.writes * length * (task > 1) if self.needs("curvature") else own
        return self.kfac * (prior + after) + bool(self.positions) * (prior + own)

    @property
    def replayed(self) -> Grid:
        """All sequences that a task replays; samples have full length."""
        if stored := self.needs("stored"):
            return Grid(stored, round(self.mean))
        return Grid(
            self.config.sampling.samples * self.needs("replay"),
            self.config.sampling.max_new_tokens + 1,
        )

    @property
    def general(self) -> Grid:
        """All general text that is sampled before the first task and distilled in every task."""
        texts = self.config.general.texts * self.needs("general")
        return Grid(texts, self.config.sampling.max_new_tokens + 1)

    @property
    def asks(self) -> int:
        """Tokens for which the previous model's states are kept: replayed and distilled ones."""
        current = round(self.items * self.mean) * self.needs("teacher")
        return self.replayed.rows * self.replayed.length + current

    def minibatch(self, rows: int) -> tuple[Grid, Grid, Grid]:
        """The batches of a step: ``rows`` sequences of the task, replay, and general text.

        The task's sequences are spread evenly over the stream's lengths, padded to the longest.
        """
        place = int((rows - 0.5) / rows * len(self.lengths))
        replayed, general = self.replayed, self.general
        beside = min(rows, replayed.rows) * self.config.replay.minibatches_per_step
        texts = min(rows, general.rows) * self.config.general.minibatches_per_step
        return (
            Grid(rows, self.lengths[place]),
            replayed._replace(rows=beside),
            general._replace(rows=texts),
        )

    def minibatches(self, task: int) -> int:
        """How many minibatches a task has; joint training adds the items of all earlier tasks."""
        items = self.items * (task if self.needs("joint") else 1)
        optim = self.config.optim
        epochs = optim.epochs_of(items) + optim.cooldown_of(items)
        return epochs * -(-items // optim.batch_size)

    @property
    def rows(self) -> int:
        """Sequences in a minibatch."""
        return min(self.config.optim.batch_size, self.items)

    @property
    def verified(self) -> Grid:
        """The batch of questions that one evaluation pass verifies."""
        at_once = max(1, self.config.evaluation.tokens_per_batch // self.lengths[-1])
        return Grid(min(at_once, self.tasks * self.items), self.lengths[-1])

    @property
    def asked(self) -> int:
        """How many tasks all rows ask together, not counting tasks that are not yet learned."""
        rows = self.config.evaluation.rows
        if rows == "horizon":
            return self.tasks
        interval = 1 if rows == "every" else int(rows)
        whole: set[int] = {*range(interval, self.tasks + 1, interval), self.tasks}
        return sum(whole) + self.tasks - len(whole)


class Rehearsal:
    """A model of the configured shape with its factors, on the meta device until it is placed.

    layers: how many of the first ones, None for all; maps: (d_in, d_out) of adapted maps.
    """

    def __init__(self, work: Workload, precision: str, layers: int | None = None) -> None:
        self.work = work
        backbone, lora = work.config.backbone, work.config.lora
        self.model: Any = load_shape(backbone.name, backbone.revision).to(getattr(torch, precision))
        if precision != "bfloat16" and multiplies_in_groups(self.model):
            raise HoldfastError(
                f"a mixture of experts cannot be predicted in {precision}: PyTorch counts its "
                "products in bfloat16 alone; give backbone.precision=bfloat16"
            )
        count = self.model.config.get_text_config().num_hidden_layers
        stacks = (module for module in self.model.modules() if isinstance(module, nn.ModuleList))
        self.stack = next(module for module in stacks if len(module) == count)
        del self.stack[layers or count :]
        if backbone.attention in ("sdpa", "eager"):
            self.model.set_attn_implementation(backbone.attention)
        with torch.device("meta"):
            self.peft: Any = with_lora(self.model, lora)
        if backbone.checkpointing:
            checkpoint_blocks(self.model)
        self.head: Any = self.model.get_output_embeddings()
        self._positions_at_once = max(1, _LOGITS_AT_ONCE // int(self.head.weight.shape[0]))
        self.maps: dict[str, tuple[int, int]] = {
            name: (int(module.in_features or 0), int(module.out_features or 0))
            for name, module in self.model.named_modules()
            if isinstance(module, LoraLayer)
        }

    def place(self, device: torch.device) -> Rehearsal:
        """Put random weights on a device; return self."""
        self.device = device
        self.peft.to_empty(device=device)
        for tensor in (*self.peft.parameters(), *self.peft.buffers()):
            if tensor.is_floating_point() and not isinstance(tensor, FakeTensor):
                nn.init.normal_(tensor, std=0.02)
        self.factors = [factor for factor in self.peft.parameters() if factor.requires_grad]
        for factor in self.factors:
            factor.grad = torch.zeros_like(factor)
        self.optimizer = torch.optim.AdamW(self.factors)
        return self

    def step(self, rows: int) -> None:
        self.gradient(rows)
        nn.utils.clip_grad_norm_(self.factors, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)

    def gradient(self, rows: int) -> None:
        """The forward and backward passes of a step: the fit term and the distillation terms."""
        self.peft.train()
        soft = self.work.config.replay.loss == "soft" and not self.work.needs("stored")
        minibatch, replayed, general = self.work.minibatch(rows)
        current = self._hidden(minibatch)
        loss = self._loss(current, self._cross_entropy)
        if replayed.rows:
            replay_loss = self._divergence if soft else self._cross_entropy
            loss = loss + self._loss(self._hidden(replayed), replay_loss)
        if general.rows:
            loss = loss + self._loss(self._hidden(general), self._divergence)
        if self.work.needs("teacher"):
            if self.work.needs("fit_gradient"):  # the fit term has its own backward pass
                loss.backward(retain_graph=True)
                loss = torch.zeros_like(loss)
            loss = loss + self._loss(current, self._divergence)
        loss.backward()

    @torch.no_grad()
    def forward(self, grid: Grid) -> None:
        """A forward pass without gradients, with the argmax at every position."""
        self.peft.eval()
        for piece in self._hidden(grid).split(self._positions_at_once):
            self.head(piece).argmax(dim=-1)

    @torch.no_grad()
    def sampling(self, rows: int) -> Callable[[], None]:
        """Return a function that samples a token in the middle of each of ``rows`` sequences."""
        self.peft.eval()
        ids = torch.zeros(rows, 1, dtype=torch.long, device=self.device)
        cache = self.model(input_ids=ids, use_cache=True).past_key_values
        middle = self.work.config.sampling.max_new_tokens // 2
        for number, layer in enumerate(cache.layers):
            if isinstance(getattr(layer, "keys", None), Tensor):  # other layers do not grow
                past = (tensor.repeat(1, 1, middle, 1) for tensor in (layer.keys, layer.values))
                cache.update(*past, number)

        @torch.no_grad()
        def draw() -> None:
            passed = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            p = passed.logits[:, -1].float().softmax(dim=-1)
            p.sort(dim=-1, descending=True).values.cumsum(dim=-1)  # the nucleus
            torch.multinomial(p, 1)

        return draw

    def _hidden(self, grid: Grid) -> Tensor:
        """The last hidden states of all predicting positions, [rows (length - 1), d]."""
        ids = torch.zeros(*grid, dtype=torch.long, device=self.device)
        states: Tensor = self.model.base_model(input_ids=ids, use_cache=False)[0]
        return states[:, :-1].flatten(0, 1)

    def _loss(self, hidden: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
        """The mean of a loss over hidden states, computed piece by piece."""
        pieces = hidden.split(self._positions_at_once)
        losses = [checkpoint(loss, piece, use_reentrant=False) for piece in pieces]
        return torch.stack(losses).sum() / len(hidden)

    def _cross_entropy(self, hidden: Tensor) -> Tensor:
        targets = torch.zeros(len(hidden), dtype=torch.long, device=self.device)
        return F.cross_entropy(self.head(hidden).float(), targets, reduction="sum")

    def _divergence(self, hidden: Tensor) -> Tensor:
        teacher = self.head(hidden.detach()).float().softmax(dim=-1)  # a run keeps its states
        student = self.head(hidden).float().log_softmax(dim=-1)
        return F.kl_div(student, teacher, reduction="sum")
