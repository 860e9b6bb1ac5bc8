"""Cache of the general text that a model writes before it has learned anything.

The text depends on the model, the seed and a few settings, so all methods of a study share it.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.backbone.generation.sampling import Sampling
from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.core.files import write_text_atomically
from holdfast.core.processes import is_rank_zero, run_on_rank_zero
from holdfast.learning.learner import Learner, Sequences
from holdfast.learning.teacher import general_text
from holdfast.model.cache import cache_directory

_SECONDS_WORTH_KEEPING = 5.0  # the embedded model writes a hundred sequences in one second


def first_general_text(learner: Learner, count: int) -> Sequences:
    """Read the general text before the first task from the cache, or else sample and store it.

    count: number of sequences to sample; empty ones are dropped. Text that takes only seconds is
    not stored, and a cache that cannot be written is ignored.
    """
    assert learner.completed == 0, "a model that has learned writes other text"
    config, begun = learner.config, time.monotonic()
    sampling = config.sampling.model_copy(update={"general": count})
    path = _path(learner, sampling)
    cached = run_on_rank_zero(lambda: _read(path))
    if cached is not None:
        return cached
    text = general_text(
        learner.backbone,
        sampling,
        seed=config.seed,
        task=1,
        keep_stop=config.template.has_end,
    )
    if is_rank_zero() and time.monotonic() - begun > _SECONDS_WORTH_KEEPING:
        with suppress(HoldfastError):
            write_text_atomically(path, json.dumps(text) + "\n", parents=True)
    return text


def _path(learner: Learner, sampling: Sampling) -> Path:
    """The cache file, whose name is a hash of everything that decides the text."""
    backbone, config = learner.backbone, learner.config
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


def _read(path: Path) -> Sequences | None:
    """The sequences of a file; None if it is missing or damaged."""
    try:
        text = json.loads(regular(path).read_text(encoding="utf-8"))
        return [[int(token) for token in sequence] for sequence in text]
    except (OSError, ValueError, TypeError):
        return None
