"""Settings under which a run fits into a device's memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.learning.config import RunConfig
from holdfast.prediction.predict import Prediction, precision_on

SAME = "results stay the same"
OTHER_DRAWS = "as many items a step, other dropout masks"
OTHER_RESULTS = "changes results"


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
    alone, joined = [], list[str]()
    worst = SAME
    below = prediction.needed
    for overrides, says in _candidates(prediction.config, prediction.machine.device):
        under = prediction.under(*overrides)
        if under.needed >= prediction.needed and under.needed >= below:
            continue
        if under.needed <= limit:
            alone.append(Remedy(overrides, says, under.needed))
        together = prediction.under(*joined, *overrides).needed
        if not alone and together < below and below > limit:
            joined += overrides
            worst = says if says != SAME else worst
            below = together
    if alone or below > limit:
        return alone
    last = {text.partition("=")[0]: text for text in joined}  # a key may be there twice
    return [Remedy(tuple(last.values()), worst, below)]


def _candidates(config: RunConfig, device: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Settings that lower memory, from those that cost nothing to those that cost most."""
    evaluation, optim, sampling = config.evaluation, config.optim, config.sampling
    for share in (4, 16):
        yield (f"evaluation.tokens_in_cache={evaluation.tokens_in_cache // share}",), SAME
    yield (f"evaluation.tokens_per_batch={max(1, evaluation.tokens_per_batch // 4)}",), SAME
    for batch in (64, 16):
        if batch < sampling.batch:
            yield (f"sampling.batch={batch}",), SAME
    size = optim.batch_size
    for smaller in (size // 2, size // 4, 1):
        if 1 <= smaller < size and size % smaller == 0:
            windows = optim.accumulation * size // smaller
            yield (
                (f"optim.batch_size={smaller}", f"optim.accumulation={windows}"),
                OTHER_DRAWS,
            )
    if "kfac" in config.composition.anchors and config.curvature.exact_up_to > 0:
        yield ("curvature.exact_up_to=0",), OTHER_RESULTS
    if precision_on(config, "cuda" if device == "cuda" else "cpu") == "float32":
        yield ("backbone.precision=bfloat16",), OTHER_RESULTS
    if config.lora.rank > 8:
        yield ("lora.rank=8",), OTHER_RESULTS
