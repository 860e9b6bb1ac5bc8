"""Hidden states and logits of a user's PEFT model, for the anchors.

The model is not changed: its decoder and its output head are called, and a hook captures the
decoder's output in the user's own forward pass, whatever computes the loss from it.
Under every allocation rule the student before its first step is the previous model, so a copy of
its factors is enough to ask it later, and no second model is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch._functorch.config as functorch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.model.lora import LoraWorkspace
from holdfast.model.projection import Projection
from holdfast.model.sequences import batches_by_length, pad_right

TOKENS_AT_ONCE = 4096
CACHED_BYTES = 2**30  # of the previous model's states
# Where the sequences of a packed row begin, for layers that do not take it from position_ids.
BOUNDS = ("seq_idx", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


class Reader:
    """model: a PEFT model of a causal language model; head: its output layer."""

    def __init__(self, model: Any) -> None:
        """Raises HoldfastError if the logits are not ``head(last hidden states)``, unadapted."""
        self.model = model
        self.base = model.get_base_model()
        self.head: nn.Module = _called(self.base, "get_output_embeddings")
        self.decoder: nn.Module = _called(self.base, "get_decoder")
        encodes = getattr(getattr(self.base, "config", None), "is_encoder_decoder", False)
        if self.head is None or self.decoder in (None, self.base) or encodes:
            raise HoldfastError(
                f"{type(self.base).__name__} has no decoder below an output layer; anchors need "
                "a causal language model"
            )
        self._captures = False
        self._captured: Tensor | None = None
        self.decoder.register_forward_hook(self._capture)
        if isinstance(self.head, BaseTunerLayer):
            raise HoldfastError(
                "the output layer is adapted, and what anchors compare goes through it; leave it "
                "out of target_modules"
            )
        ids = torch.tensor([[0, 1]], device=self.device)
        with self.answering(), torch.no_grad():
            whole = self.base(input_ids=ids, use_cache=False).logits
            parts = self.logits(self.hidden(ids))
        if not torch.allclose(whole.float(), parts.float(), rtol=1e-3, atol=1e-3):
            raise HoldfastError(
                f"{type(self.base).__name__} changes its logits after the output layer (a scale "
                "or a soft cap), which anchors cannot see; it is not supported"
            )

    @property
    def device(self) -> torch.device:
        weight: Tensor = self.head.weight  # type: ignore[assignment]
        return weight.device

    @property
    def vocabulary(self) -> int:
        """The number of input tokens that the model knows."""
        return len(self.base.get_input_embeddings().weight)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., d] -> [..., vocabulary]."""
        logits: Tensor = self.head(hidden)
        return logits

    def hidden(self, ids: Tensor, mask: Tensor | None = None, **more: Any) -> Tensor:
        """The last hidden states [batch, length, d]; mask: real tokens, [batch, length]."""
        given = {} if mask is None else {"attention_mask": mask.long()}
        return _states(self.decoder(input_ids=ids, use_cache=False, **given, **more))

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """Within the block, the last hidden states of a pass are kept for :meth:`captured`.

        The hook is registered once, in ``__init__``: a compiled model would not notice a new one.
        """
        self._captures = True
        try:
            yield
        finally:
            self._captures = False

    def captured(self, ids: Tensor) -> Tensor:
        """The last hidden states [batch, length, d] of the last pass; they are returned once.

        ids: of the batch. Raises HoldfastError for none, and for those of another batch or without
        gradients.
        """
        states, self._captured = self._captured, None
        if states is None:
            raise HoldfastError(
                "the loss was computed without the model's decoder, or without gradients; to "
                "validate, compute the model's own loss"
            )
        if states.shape[:2] != ids.shape:
            raise HoldfastError(
                f"the loss's last pass through the model read {list(states.shape[:2])} tokens, and "
                f"the batch has {list(ids.shape)}; make further passes first, or under no_grad"
            )
        if torch.is_grad_enabled() and not states.requires_grad:
            raise HoldfastError(
                "the last hidden states have no gradient; make a pass without the adapter under "
                "no_grad, and with reentrant checkpointing set "
                "gradient_checkpointing_kwargs={'use_reentrant': False}"
            )
        return states

    def _capture(self, _: nn.Module, __: Any, output: Any) -> None:
        # A trainer may run the model again for its metrics, without a graph.
        if self._captures and torch.is_grad_enabled():
            self._captured = _states(output)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Within the block the model is in evaluation mode; then each module has its mode again."""
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode

    def written(
        self, sequences: Sequence[Sequence[int]], teacher: Tensor, opening: int = 1
    ) -> Projection:
        """The student's predictions on sequences that a teacher model wrote.

        teacher: the teacher's states at predicting positions; opening: how many tokens at the
        beginning of every sequence it did not write.
        """
        ids, mask = pad_right(sequences, 0, self.device)
        states, predicting = self.hidden(ids, mask)[:, :-1], mask[:, 1:].clone()
        predicting[:, : opening - 1] = False
        return Projection(
            self, states[predicting], teacher.to(states.device), ids[:, 1:][predicting]
        )

    def states_of(self, sequences: Sequence[Sequence[int]], opening: int = 1) -> list[Tensor]:
        """Each sequence's states [length - opening, d] that predict its written tokens, no dropout.

        opening: as in :meth:`written`, at least 1.
        """
        states: list[Tensor] = [torch.empty(0)] * len(sequences)
        with self.answering(), torch.no_grad():
            lengths = [len(sequence) for sequence in sequences]
            for chosen in batches_by_length(lengths, TOKENS_AT_ONCE):
                ids, mask = pad_right([sequences[index] for index in chosen], 0, self.device)
                hidden = self.hidden(ids, mask)
                for row, index in zip(hidden, chosen, strict=True):
                    states[index] = row[opening - 1 : len(sequences[index]) - 1].clone()
        return states


def loss_of(model: Any, batch: Mapping[str, Any], compute: Callable[..., Tensor] | None) -> Tensor:
    """The loss that ``compute``, or else the model, returns on a batch, a scalar.

    Raises HoldfastError if it returns none, or something else.
    """
    loss: Any = compute(model, batch) if compute else model(**batch, use_cache=False).loss
    if compute is None and loss is None:
        raise HoldfastError("the model returned no loss; the batch needs labels, or give compute")
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        kind = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise HoldfastError(f"the loss is {kind}: let compute, or the model, return one number")
    return loss


def _called(base: Any, method: str) -> Any:
    """Call a method of a transformers model; None if the model has no such method."""
    return getattr(base, method, lambda: None)()


def _states(output: Any) -> Tensor:
    states: Tensor = output[0] if isinstance(output, tuple) else output.last_hidden_state
    return states


def tensors_of(batch: Any) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
    """A collated batch's ids, masks of real and of trained tokens, and further inputs.

    The first three are [batch, length]; a token is trained on if it is real and its label is not
    -100. Further inputs of the model are ``position_ids`` and ``token_type_ids``.
    Raises HoldfastError if there are no input ids, for images and sounds, and if they are no
    tensors.
    """
    if not isinstance(batch, Mapping) or "input_ids" not in batch:
        given = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
        raise HoldfastError(f"a batch of {given} has no input_ids, which anchors need")
    for name, value in batch.items():
        if name.startswith(("pixel_values", "input_features")) and value is not None:
            raise HoldfastError(
                f"the batch has {name}, and anchors read tokens alone; learn from text without it"
            )
    for name in ("input_ids", "attention_mask", "labels"):
        value = batch.get(name)
        if value is not None and not (isinstance(value, Tensor) and value.dim() > 1):
            raise HoldfastError(
                f"the batch's {name} are no tensor [batch, length]; collate the rows first, "
                'such as with tokenizer(texts, padding=True, return_tensors="pt")'
            )
    ids: Tensor = batch["input_ids"]
    mask = batch.get("attention_mask")
    real = torch.ones_like(ids, dtype=torch.bool)
    if mask is not None and mask.dim() == 2:
        real = mask.bool()
    labels = batch.get("labels")
    trained = real if labels is None else real & (labels != -100)
    more = {name: batch[name] for name in ("position_ids", "token_type_ids") if name in batch}
    return ids, real, trained, more


class PreviousModel:
    """The model at the start of the task; its states on rows are cached, up to CACHED_BYTES."""

    def __init__(
        self, reader: Reader, workspace: LoraWorkspace, start: Mapping[str, Tensor]
    ) -> None:
        """start: the coordinates before the first step."""
        self._reader, self._workspace, self._start = reader, workspace, start
        self._cache: dict[bytes, Tensor] = {}
        self._bytes_left = CACHED_BYTES

    @torch.no_grad()
    def states(self, batch: Mapping[str, Any]) -> Tensor:
        """Its last hidden states [batch, length, d] on a collated batch; 0 at padding.

        Every row is computed alone, so its states depend neither on other rows nor on the cache.
        """
        ids, real, _, more = tensors_of(batch)
        mask = batch.get("attention_mask")
        if mask is not None and mask.dim() != 2:
            raise HoldfastError(
                f"the attention mask has {mask.dim()} dimensions; sd needs one of [batch, length]"
            )
        # Position ids that restart separate packed sequences only if there is no mask.
        masked = mask is not None
        if len(ids) == 1:  # packed rows have no padding, so they are one
            more |= {name: batch[name] for name in BOUNDS if name in batch}
        rows = [self._key(ids[row], real[row], more, row, masked) for row in range(len(ids))]
        missing = {key: row for row, key in enumerate(rows) if key not in self._cache}
        asked: dict[bytes, Tensor] = {}
        if missing:
            with self._workspace.at(self._start), self._reader.answering():
                for key, row in missing.items():
                    asked[key] = self._ask(ids[row], real[row], more, row, masked)
        for key, states in asked.items():
            size = states.numel() * states.element_size()
            if size <= self._bytes_left:
                self._bytes_left -= size
                self._cache[key] = states.cpu()
        answers = [asked[key] if key in asked else self._cache[key].to(ids.device) for key in rows]
        whole = answers[0].new_zeros(*ids.shape, answers[0].shape[-1])
        for row, states in enumerate(answers):
            whole[row, real[row]] = states
        return whole

    def _ask(
        self, ids: Tensor, real: Tensor, more: Mapping[str, Any], row: int, masked: bool
    ) -> Tensor:
        """The states at the real tokens of one row."""
        if _is_alone(real, more):
            return self._reader.hidden(ids[real][None])[0]
        given = {name: _row(value, row) for name, value in more.items()}
        mask = real[None] if masked else None
        return self._reader.hidden(ids[None], mask, **given)[0][real]

    def _key(
        self, ids: Tensor, real: Tensor, more: Mapping[str, Any], row: int, masked: bool
    ) -> bytes:
        parts = [ids[real] if _is_alone(real, more) else torch.where(real, ids, -1)]
        tensors = [value for value in more.values() if isinstance(value, Tensor)]
        parts += [_row(value, row).flatten() for value in tensors]
        return bytes([masked]) + b"|".join(part.cpu().numpy().tobytes() for part in parts)


def _is_alone(real: Tensor, more: Mapping[str, Any]) -> bool:
    """Whether the model needs only the real tokens of a row: they come first, without ``more``."""
    return not more and bool(real[: int(real.sum())].all())


def _row(value: Any, row: int) -> Any:
    """A row of a batch's input; what a packed row alone has is of that row."""
    several = isinstance(value, Tensor) and value.dim() > 1 and len(value) > 1
    return value[row : row + 1] if several else value


def keep_buffers() -> None:
    """Let models that are compiled from now on run backward twice, which ``si`` needs."""
    functorch.donated_buffer = False  # the first backward pass frees donated buffers
