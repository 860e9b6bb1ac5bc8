"""Outputs of the previous model, the teacher, computed once per task.

Under every allocation rule the student before its first step is the model after the previous
task. All sequences that need teacher outputs are known then, so its hidden states are computed
once, in evaluation mode, and projected through the frozen head whenever a loss needs them. No
copy of the model is made and no forward pass is repeated.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.core.files import write_text_atomically
from holdfast.core.processes import all_gather_rows, is_rank_zero, rank_indices, run_on_rank_zero
from holdfast.core.seeding import generator
from holdfast.learning.learner import Learner, Sequences
from holdfast.model.backbone import Backbone
from holdfast.model.generation.sampling import sample_continuations
from holdfast.model.kronecker import Curvature
from holdfast.model.sequences import TokenStates, batches_by_length, collate
from holdfast.model.sources.cache import cache_directory

TOKENS_AT_ONCE = 16_384
_SECONDS_WORTH_KEEPING = 5.0  # the embedded model writes a hundred sequences in one second


@dataclass(frozen=True)
class Past:
    """Outputs of the previous model, computed before the student's first step.

    replay: sequences sampled from the replay token (with ``stored``: stored ones); general:
    sequences sampled from random tokens; both may be empty. replay_states, current_states: last
    hidden states on ``replay`` and on the task's own sequences; curvature: Kronecker factors on
    ``replay`` and ``general``; each is None if no anchor needs it.
    """

    replay: Sequences
    general: Sequences
    replay_states: TokenStates | None
    current_states: TokenStates | None
    curvature: Curvature | None


def states_of(backbone: Backbone, sequences: Sequence[Sequence[int]]) -> TokenStates:
    """The last hidden states at all predicting positions, in the order of ``sequences``."""
    indices = rank_indices(len(sequences))
    empty = backbone.head.weight.new_empty(0, backbone.head.weight.shape[1])
    pieces = [empty] * len(sequences)
    lengths = [len(sequence) for sequence in sequences]
    for chosen in batches_by_length(lengths, TOKENS_AT_ONCE, indices):
        batch = collate([sequences[index] for index in chosen], backbone.device)
        with backbone.answering():
            packed = backbone.states(batch)
        for index, piece in zip(chosen, packed.split(list(batch.lengths)), strict=True):
            pieces[index] = piece
    counts = [len(sequence) - 1 for sequence in sequences]
    states = all_gather_rows(torch.cat(pieces), counts)
    return TokenStates(states, list(accumulate(counts, initial=0)))


def replay_set(learner: Learner, task: int) -> Sequences:
    """Sample sequences of the previous model from the replay token; empty ones are dropped.

    Sequences are the sampled tokens; text is never tokenized again.
    Source: eq. app-replay-generate, eq. app-replay-buffer.
    """
    backbone = learner.backbone
    assert backbone.seed_token is not None
    begins = torch.full((learner.config.sampling.samples,), backbone.seed_token)
    stops = learner.template.stops(backbone.tokenizer, backbone.stop_tokens)
    return _written(learner, begins, ("replay", task), stops)


def general_text(learner: Learner, task: int, count: int) -> Sequences:
    """Sample sequences of the previous model from ``count`` tokens drawn from its vocabulary."""
    backbone = learner.backbone
    drawable = text_tokens(backbone.tokenizer, backbone.stop_tokens)
    source = generator(learner.config.seed, "general text", task)
    chosen = torch.randint(len(drawable), (count,), generator=source)
    return _written(learner, torch.tensor(drawable)[chosen], ("general", task))


def text_tokens(tokenizer: Any, never: Collection[int]) -> list[int]:
    """The tokens of a vocabulary that are neither special nor in ``never``, ascending."""
    excluded = {*never, *tokenizer.all_special_ids}
    return sorted(token for token in tokenizer.get_vocab().values() if token not in excluded)


def _written(
    learner: Learner, begins: torch.Tensor, purpose: tuple[str | int, ...], stops: int = 1
) -> Sequences:
    """Continue each token of ``begins`` to its ``stops``-th stop token; empty ones are dropped.

    A sequence keeps its stop token, and so a loss on it, if the template trains on it.
    """
    backbone, config = learner.backbone, learner.config
    drawn = sample_continuations(
        backbone, begins, config.sampling, seed=config.seed, purpose=purpose, stops=stops
    )
    sequences = []
    for begin, tokens in zip(begins.tolist(), drawn, strict=True):
        text = tokens[:-1] if tokens[-1] in backbone.stop_tokens else tokens
        if text:
            sequences.append([begin, *(tokens if config.template.has_end else text)])
    return sequences


def first_general_text(learner: Learner, count: int) -> Sequences:
    """The general text before the first task, from the cache, or else sampled and stored there.

    It depends on the model, the seed and a few settings, so all methods of a study share it.
    Text that takes only seconds is not stored, and a cache that cannot be written is ignored.
    """
    assert learner.completed == 0, "a model that has learned writes other text"
    begun = time.monotonic()
    path = _cache_file(learner, count)
    cached = run_on_rank_zero(lambda: _cached(path))
    if cached is not None:
        return cached
    text = general_text(learner, 1, count)
    if is_rank_zero() and time.monotonic() - begun > _SECONDS_WORTH_KEEPING:
        with suppress(HoldfastError):
            write_text_atomically(path, json.dumps(text) + "\n", parents=True)
    return text


def _cache_file(learner: Learner, count: int) -> Path:
    """The cache file, whose name is a hash of everything that decides the text."""
    backbone, config = learner.backbone, learner.config
    sampling = config.sampling.model_copy(update={"general": count})
    drawn_with = {"general", "temperature", "top_p", "top_k", "max_new_tokens", "batch"}
    decided_by: dict[str, Any] = {
        "backbone": config.backbone.model_dump(mode="json", exclude={"name", "revision"}),
        "device": backbone.device.type,
        "precision": str(backbone.dtype),
        "replay token": backbone.seed_token,
        "sampling": sampling.model_dump(mode="json", include=drawn_with),
        "append_eos": config.template.has_end,
        "seed": config.seed,
        "torch": version("torch"),  # another version or device may round differently
    }
    if config.template.form == "chat":  # the end of a turn stops the model too
        decided_by["stops"] = sorted(backbone.stop_tokens)
    name = f"{backbone.fingerprint[:16]}-{sha256_of(decided_by)[:16]}.json"
    return cache_directory() / "general" / name


def _cached(path: Path) -> Sequences | None:
    """The sequences of a file; None if it is missing or damaged."""
    try:
        text = json.loads(regular(path).read_text(encoding="utf-8"))
        return [[int(token) for token in sequence] for sequence in text]
    except (OSError, ValueError, TypeError):
        return None
