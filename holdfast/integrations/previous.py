"""What the previous model is asked: samples, and its hidden states.

Under every allocation rule the student before its first step is the previous model, so a copy of
its factors is enough to ask it later, and no second model is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from holdfast.backbone.generation.sampling import Sampling
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import derive
from holdfast.integrations.reader import Reader, tensors_of
from holdfast.model.lora import LoraWorkspace

CACHED_BYTES = 2**30
AT_ONCE = 32  # sequences sampled at once; a constant, since it decides the draws


class PreviousModel:
    """The model at the start of the task, asked about minibatches; each row is asked once."""

    def __init__(
        self, reader: Reader, workspace: LoraWorkspace, start: Mapping[str, Tensor]
    ) -> None:
        """start: the coordinates before the first step."""
        self._reader, self._workspace, self._start = reader, workspace, start
        self._known: dict[bytes, Tensor] = {}
        self._left = CACHED_BYTES

    @torch.no_grad()
    def states(self, batch: Mapping[str, Any]) -> Tensor:
        """Its last hidden states [batch, length, d] on a collated batch; 0 at padding.

        Every row is computed alone and without its padding, so that what it is does not depend on
        the rows beside it, nor on whether it was asked before.
        """
        ids, real, _, more = tensors_of(batch)
        rows = [self._key(ids[row], real[row], more, row) for row in range(len(ids))]
        missing = {key: row for row, key in enumerate(rows) if key not in self._known}
        asked: dict[bytes, Tensor] = {}
        if missing:
            with self._workspace.at(self._start), self._reader.answering():
                for key, row in missing.items():
                    asked[key] = self._ask(ids[row], real[row], more, row)
        for key, states in asked.items():
            size = states.numel() * states.element_size()
            if size <= self._left:
                self._left -= size
                self._known[key] = states.cpu()
        found = [asked[key] if key in asked else self._known[key].to(ids.device) for key in rows]
        whole = found[0].new_zeros(*ids.shape, found[0].shape[-1])
        for row, states in enumerate(found):
            whole[row, real[row]] = states
        return whole

    def _ask(self, ids: Tensor, real: Tensor, more: Mapping[str, Tensor], row: int) -> Tensor:
        """The states at the real tokens of one row."""
        if _is_alone(real, more):
            return self._reader.hidden(ids[real][None])[0]
        given = {name: _row(value, row) for name, value in more.items()}
        mask = None if bool(real.all()) else real[None]
        return self._reader.hidden(ids[None], mask, **given)[0][real]

    def _key(self, ids: Tensor, real: Tensor, more: Mapping[str, Tensor], row: int) -> bytes:
        parts = [ids[real] if _is_alone(real, more) else torch.where(real, ids, -1)]
        parts += [_row(value, row).flatten() for value in more.values()]
        return b"|".join(part.cpu().numpy().tobytes() for part in parts)


def _is_alone(real: Tensor, more: Mapping[str, Tensor]) -> bool:
    """Whether the real tokens of a row come first, so that they are the whole input."""
    return not more and bool(real[: int(real.sum())].all())


def _row(value: Tensor, row: int) -> Tensor:
    return value[row : row + 1] if len(value) > 1 else value


@torch.no_grad()
def samples(
    reader: Reader, prompts: Sequence[Sequence[int]], settings: Sampling, stop: set[int], seed: int
) -> list[list[int]]:
    """A continuation of every prompt by ``generate``, the prompt before it; empty ones dropped.

    prompts: token ids, all of one length; stop: the tokens that end a sequence, which stay in it;
    seed: of the draws, which leave the global generators alone.
    Source: eq. app-replay-generate, eq. app-replay-buffer.
    """
    written: list[list[int]] = []
    device = reader.device
    for start in range(0, len(prompts), AT_ONCE):
        ids = torch.tensor([list(one) for one in prompts[start : start + AT_ONCE]], device=device)
        with reader.answering(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(derive(seed, "batch", start))
            drawn = reader.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k or 0,
                # What the model's own generation_config may add is no part of the draw.
                min_p=0.0,
                typical_p=1.0,
                repetition_penalty=1.0,
                no_repeat_ngram_size=0,
                num_beams=1,
                max_new_tokens=settings.max_new_tokens,
                eos_token_id=sorted(stop) or None,
                pad_token_id=min(stop, default=0),
            )
        for row in drawn.tolist():
            text = row[ids.shape[1] :]
            end = next((place for place, token in enumerate(text) if token in stop), len(text))
            if end:
                written.append(row[: ids.shape[1] + end + 1])
    return written


def beginnings(tokenizer: Any, base: Any) -> list[int]:
    """The tokens that a sample begins with where nothing else is said: the model's first one.

    Raises HoldfastError for a model without one.
    """
    for name in ("bos_token_id", "eos_token_id"):
        for owner in (tokenizer, getattr(base, "generation_config", None), base.config):
            token = getattr(owner, name, None)
            token = token[0] if isinstance(token, list) and token else token
            if isinstance(token, int):
                return [token]
    raise HoldfastError(
        "the model has no first token to sample from; give begin_with=[TOKEN ID, ...]"
    )


def stop_tokens(tokenizer: Any, base: Any) -> set[int]:
    """The tokens that end what the model writes."""
    found: set[int] = set()
    for owner in (tokenizer, getattr(base, "generation_config", None), base.config):
        token = getattr(owner, "eos_token_id", None)
        found |= (
            set(token) if isinstance(token, list) else ({token} if token is not None else set())
        )
    return found
