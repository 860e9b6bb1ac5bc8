"""The passes of a run as a plain script of its shape: transformers, PEFT's LoRA, AdamW.

With made-up weights on a device they are measured; on fake tensors, which have shapes and no
values, their memory is counted. Neither needs the weights of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import checkpoint

from holdfast.backbone.checkpointing import checkpoint_blocks
from holdfast.backbone.load import load_shape
from holdfast.model.lora import with_lora
from holdfast.prediction.workload import Grid, Workload

_LOGITS_AT_ONCE = 1 << 24  # a loss projects so many at a time, and again on its way back


class Rehearsal:
    """A model of the configured shape with its factors; maps: (d_in, d_out) of those adapted."""

    def __init__(self, work: Workload, precision: str, layers: int | None = None) -> None:
        """On the meta device; layers: only the first ones, None for all."""
        self.work = work
        named, lora = work.config.backbone, work.config.lora
        self.model: Any = load_shape(named.name, named.revision).to(getattr(torch, precision))
        count = self.model.config.get_text_config().num_hidden_layers
        stacks = (one for one in self.model.modules() if isinstance(one, nn.ModuleList))
        self.stack = next(one for one in stacks if len(one) == count)
        del self.stack[layers or count :]
        if named.attention in ("sdpa", "eager"):
            self.model.set_attn_implementation(named.attention)
        with torch.device("meta"):
            self.peft: Any = with_lora(self.model, lora)
        if named.checkpointing:
            checkpoint_blocks(self.model)
        self.head: Any = self.model.get_output_embeddings()
        self.maps: dict[str, tuple[int, int]] = {
            name: (int(one.in_features or 0), int(one.out_features or 0))
            for name, one in self.model.named_modules()
            if isinstance(one, LoraLayer)
        }

    def place(self, device: torch.device) -> Rehearsal:
        """Make the weights up on a device, and return itself."""
        self.device = device
        self.peft.to_empty(device=device)
        for one in (*self.peft.parameters(), *self.peft.buffers()):
            if one.is_floating_point() and not isinstance(one, FakeTensor):
                nn.init.normal_(one, std=0.02)
        self.factors = [one for one in self.peft.parameters() if one.requires_grad]
        for one in self.factors:
            one.grad = torch.zeros_like(one)
        self.optimizer = torch.optim.AdamW(self.factors)
        return self

    def step(self, rows: int) -> None:
        """A training step on a minibatch of so many sequences."""
        self.gradient(rows)
        nn.utils.clip_grad_norm_(self.factors, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)

    def gradient(self, rows: int) -> None:
        """There and back: the fit term, and what is distilled of the previous model."""
        self.peft.train()
        soft = self.work.config.replay.loss == "soft" and not self.work.needs("stored")
        current, *replay = (self._hidden(grid) for grid in self.work.minibatch(rows))
        loss = self._loss(current, self._cross_entropy)
        for hidden in replay:
            loss = loss + self._loss(hidden, self._divergence if soft else self._cross_entropy)
        if self.work.needs("teacher"):
            if self.work.needs("fit_gradient"):  # that of the fit term comes alone
                loss.backward(retain_graph=True)
                loss = torch.zeros_like(loss)
            loss = loss + self._loss(current, self._divergence)
        loss.backward()

    @torch.no_grad()
    def forward(self, grid: Grid) -> None:
        """A pass without a way back, with the argmax at every position."""
        self.peft.eval()
        for piece in self._hidden(grid).split(self._at_once()):
            self.head(piece).argmax(dim=-1)

    @torch.no_grad()
    def sampling(self, rows: int) -> Callable[[], None]:
        """A function that samples a token in the middle of so many sequences."""
        self.peft.eval()
        ids = torch.zeros(rows, 1, dtype=torch.long, device=self.device)
        cache = self.model(input_ids=ids, use_cache=True).past_key_values
        for number, layer in enumerate(cache.layers):
            if isinstance(getattr(layer, "keys", None), Tensor):  # else it does not grow
                both, middle = (
                    (layer.keys, layer.values),
                    self.work.config.sampling.max_new_tokens // 2,
                )
                cache.update(*(one.repeat(1, 1, middle, 1) for one in both), number)

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
        """The mean of a loss over hidden states, a piece at a time."""
        pieces = hidden.split(self._at_once())
        losses = [checkpoint(loss, one, use_reentrant=False) for one in pieces]
        return torch.stack(losses).sum() / len(hidden)

    def _cross_entropy(self, hidden: Tensor) -> Tensor:
        targets = torch.zeros(len(hidden), dtype=torch.long, device=self.device)
        return F.cross_entropy(self.head(hidden).float(), targets, reduction="sum")

    def _divergence(self, hidden: Tensor) -> Tensor:
        teacher = self.head(hidden.detach()).float().softmax(dim=-1)  # of states that were kept
        student = self.head(hidden).float().log_softmax(dim=-1)
        return F.kl_div(student, teacher, reduction="sum")

    def _at_once(self) -> int:
        return max(1, _LOGITS_AT_ONCE // int(self.head.weight.shape[0]))
