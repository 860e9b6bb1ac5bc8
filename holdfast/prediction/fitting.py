"""Settings under which a run fits into a device's memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.learning.config import RunConfig
from holdfast.prediction.predict import Prediction, precision_on

SAME = "results stay the same"
SLOWER = "results stay the same, slower"
OTHER_DRAWS = "as many items a step, other dropout masks"
OTHER_RESULTS = "changes results"

Candidate = tuple[tuple[str, ...], str]


@dataclass(frozen=True)
class Remedy:
    """overrides: settings to add; says: what they do to the results; needed: bytes under them."""

    overrides: tuple[str, ...]
    says: str
    needed: int


def remedies(prediction: Prediction) -> list[Remedy]:
    """Settings that make it fit, each alone, the ones that change nothing first.

    Where none does alone, one that joins as many as are needed; empty where all do not.
    """
    limit = prediction.machine.memory
    assert limit is not None
    alone: dict[str, Remedy] = {}  # by the setting: the mildest value that is enough
    for overrides, says in _candidates(prediction.config, prediction.machine.device):
        needed = prediction.under(*overrides).needed
        if needed <= limit:
            alone.setdefault(_keys(overrides)[0], Remedy(overrides, says, needed))
    return list(alone.values()) or _joined(prediction, limit)


def _joined(prediction: Prediction, limit: int) -> list[Remedy]:
    """The first setting that lowers the highest phase, again and again, until all together fit."""
    joined: dict[str, str] = {}
    effects: set[str] = set()
    below = prediction.needed
    candidates = list(_candidates(prediction.config, prediction.machine.device))
    while below > limit:
        for overrides, says in candidates:
            tried = joined | dict(zip(_keys(overrides), overrides, strict=True))
            needed = prediction.under(*tried.values()).needed
            if needed < below:
                joined, below = tried, needed
                effects.add(says)
                break
        else:
            return []
    worst = max(effects, key=(SAME, SLOWER, OTHER_DRAWS, OTHER_RESULTS).index)
    return [Remedy(tuple(joined.values()), worst, below)]


def _keys(overrides: tuple[str, ...]) -> list[str]:
    return [text.partition("=")[0] for text in overrides]


def _candidates(config: RunConfig, device: str) -> Iterator[Candidate]:
    """Settings that lower memory, from those that cost nothing to those that cost most."""
    evaluation, sampling, backbone = config.evaluation, config.sampling, config.backbone
    for share in (4, 16):
        yield (f"evaluation.tokens_in_cache={evaluation.tokens_in_cache // share}",), SAME
    yield (f"evaluation.tokens_per_batch={max(1, evaluation.tokens_per_batch // 4)}",), SAME
    for batch in (64, 16):
        if batch < sampling.batch:
            yield (f"sampling.batch={batch}",), SAME
    if device == "cuda" and not backbone.offload:
        yield ("backbone.offload=true",), SLOWER
    if not backbone.checkpointing:
        yield ("backbone.checkpointing=true",), SLOWER
    yield from _smaller_minibatches(config)
    yield from _other_results(config, device)


def _smaller_minibatches(config: RunConfig) -> Iterator[Candidate]:
    size = config.optim.batch_size
    for smaller in (size // 2, size // 4, 1):
        if 1 <= smaller < size and size % smaller == 0:
            windows = config.optim.accumulation * size // smaller
            settings = f"optim.batch_size={smaller}", f"optim.accumulation={windows}"
            yield settings, OTHER_DRAWS


def _other_results(config: RunConfig, device: str) -> Iterator[Candidate]:
    if "kfac" in config.composition.anchors and config.curvature.exact_up_to > 0:
        yield ("curvature.exact_up_to=0",), OTHER_RESULTS
    if precision_on(config, "cuda" if device == "cuda" else "cpu") == "float32":
        yield ("backbone.precision=bfloat16",), OTHER_RESULTS
    if config.backbone.quantization == "none" and config.lora.merge_precision == "float32":
        yield ("backbone.quantization=int8",), OTHER_RESULTS
        yield ("backbone.quantization=nf4",), OTHER_RESULTS
    if config.lora.rank > 8:
        yield ("lora.rank=8",), OTHER_RESULTS
