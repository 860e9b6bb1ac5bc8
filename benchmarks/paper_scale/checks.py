"""Does the engine compute on this device what the plain reference computes?

All in float64 on the embedded model, where nothing but a mistake makes a visible difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.twins import FULL, Twins, configuration, items
from holdfast.backbone.generation import sampling
from holdfast.backbone.generation.cache import BlockCache, cache_for
from holdfast.backbone.generation.cached import CachedSteps
from holdfast.backbone.generation.graph import GraphSteps, recorded
from holdfast.backbone.generation.nucleus import nucleus_sample
from holdfast.backbone.load import load_backbone
from holdfast.backbone.model import Backbone
from holdfast.evaluation.recall import Recall
from holdfast.learning.boundary import TaskReport
from holdfast.streams import Stream, Task
from reference.recall import continuation, first_box, is_correct
from reference.state import Result

_TASKS, _ITEMS, _ANSWER = 2, 4, 24
_DRAWN, _LENGTH = 48, 40
_LOSSES, _FACTORS = 1e-7, 1e-5  # relative; AdamW divides small gradients by their own size
_SETTINGS: dict[str, Any] = {
    "lora": {"dropout": 0.0},
    "optim": {"epochs": 6, "lr": 5e-3, "batch_size": 2},
    "sampling": {"samples": 5, "max_new_tokens": 8, "temperature": 1.0},
}


class CheckError(Exception):
    """Says in one line what differs."""


@dataclass(frozen=True)
class Check:
    name: str
    found: str


def checks(device: torch.device) -> list[Check]:
    """What was compared and how it came out; CheckError where it came out wrong."""
    config = configuration(FULL, **_SETTINGS)
    twins = Twins(config, lambda: _exact(device))
    stream = items(_TASKS + 1, _ITEMS)  # the last stays unseen: its answers are wrong
    found = [_whole_tasks(twins, stream.tasks[:_TASKS])]
    found.append(_replayed_steps(twins.learner.backbone))
    found.append(_draws(device))
    found.append(_verdicts(twins, stream))
    return found


def _whole_tasks(twins: Twins, tasks: Sequence[Task]) -> Check:
    """Losses, factors, importances and merged matrices of two whole tasks."""
    if twins.learner.backbone.decoder is None:
        raise CheckError("whole tasks: the decoder that is written out was not taken")
    losses = factors = 0.0
    for task in tasks:
        sequences = twins.learner.encode(task)
        report = twins.engine_learns(sequences)
        result = twins.reference_learns(twins.given(sequences, report.replay))
        losses = max(losses, _losses_apart(report, result))
        factors = max(factors, _factors_apart(twins, report, result))
    if not report.replay:
        raise CheckError("whole tasks: nothing was replayed, so replay was not compared")
    said = f"losses differ by {losses:.1e}, factors, merges and importances by {factors:.1e}"
    allowed = f"allowed {_LOSSES:.0e} and {_FACTORS:.0e}, relative"
    if not (losses <= _LOSSES and factors <= _FACTORS):
        raise CheckError(f"whole tasks: {said}; {allowed}")
    return Check("two whole tasks against the reference", f"{said} ({allowed})")


def _losses_apart(report: TaskReport, result: Result) -> float:
    """The largest relative difference of a term's mean over an epoch."""
    steps = len(result.steps) // len(report.epochs)
    apart = 0.0
    for number, ours in enumerate(report.epochs):
        theirs = result.steps[number * steps : (number + 1) * steps]
        for name, term in {"sft": "sft", "replay": "replay", "sd": "function"}.items():
            if term in theirs[0]:
                mean = sum(step[term] for step in theirs) / steps
                apart = max(apart, abs(ours[name] - mean) / abs(mean))
    return apart


def _factors_apart(twins: Twins, report: TaskReport, result: Result) -> float:
    """The largest relative difference of a factor, an importance or a merged matrix."""
    adapters = twins.learner.adapters
    anchors: dict[str, Any] = dict(twins.learner.anchors)
    pairs = [
        (one, other)
        for name, both in adapters.split(report.factors).items()
        for one, other in zip(both, result.factors[name], strict=True)
    ]
    pairs += [(adapters.dense(name), result.dense[name]) for name in adapters.layers]
    importances = adapters.named(anchors["si"].importance)
    pairs += [(ours, twins.state.importance[name]) for name, ours in importances.items()]
    return max(_gap(ours, theirs) for ours, theirs in pairs)


def _replayed_steps(backbone: Backbone) -> Check:
    """Sampling by steps of static shape, recorded where the device records, and by plain ones."""
    on_gpu = backbone.device.type == "cuda"
    used: list[GraphSteps] = []

    def static(of: Backbone) -> GraphSteps:
        cache = cache_for(of.model, 16)
        assert isinstance(cache, BlockCache)
        used.append(GraphSteps(of, cache, recorded if on_gpu else _as_is))
        return used[-1]

    drawn = [_sampled(backbone, make) for make in (static, CachedSteps)]
    way = "recorded" if on_gpu else "static"
    if not used[-1].replays:
        raise CheckError(f"sampling: no step was {way}; the log says why")
    wrong = sum(ours != plain for ours, plain in zip(*drawn, strict=True))
    if wrong:
        raise CheckError(f"sampling: {wrong} of {_DRAWN} sequences by {way} steps differ")
    tokens = sum(map(len, drawn[0]))
    return Check(f"{way} steps against plain ones", f"{tokens} tokens, all the same")


def _sampled(backbone: Backbone, make: Callable[[Backbone], Any]) -> list[list[int]]:
    assert backbone.seed_token is not None
    with patch.object(sampling, "steps_for", make):
        return sampling.sample_continuations(
            backbone,
            [backbone.seed_token] * _DRAWN,
            sampling.Sampling(max_new_tokens=_LENGTH),
            seed=3,
            purpose=("check",),
        )


def _draws(device: torch.device) -> Check:
    """The device's ways of drawing against the processor's; narrow and wide nuclei."""
    source = torch.Generator().manual_seed(4)
    logits = torch.randn(64, 3000, generator=source, dtype=torch.float64)
    logits = logits * torch.linspace(0.1, 8, 64, dtype=torch.float64)[:, None]
    for shape in ((64,), (64, 15)):
        noise = torch.rand(shape, generator=source, dtype=torch.float64)
        ours = nucleus_sample(logits.to(device), noise.to(device), 0.9, None)
        wrong = int((ours.cpu() != nucleus_sample(logits, noise, 0.9, None)).sum())
        if wrong:
            raise CheckError(f"drawing: {wrong} of 64 tokens are others than the processor draws")
    return Check("drawing against the processor", "64 tokens in two ways, all the same")


def _verdicts(twins: Twins, stream: Stream) -> Check:
    """Recall by verification against one greedy generation after another."""
    learner = twins.learner
    limits = Recall.Config(max_new_tokens=_ANSWER)
    recall = Recall(learner.backbone, learner.template, limits, exact_case=True)
    asked = [item for task in stream.tasks for item in task.items]
    right = 0
    for item, verdict in zip(asked, recall.verdicts(asked), strict=True):
        text = continuation(
            twins.state.backbone,
            twins.twin.tokenizer,
            item.question,
            learner.backbone.seed_token,
            _ANSWER,
        )
        correct = is_correct(first_box(text), item.answer, item.aliases)
        if correct != verdict.correct:
            raise CheckError(f"recall: {item.question} is judged {verdict.correct}, not {correct}")
        right += correct
    return Check("recall against generation", f"{len(asked)} verdicts agree, {right} right")


class _Norm(nn.Module):
    """The root-mean-square norm in its input's precision; transformers' own is float32."""

    def __init__(self, like: Any) -> None:
        super().__init__()
        self.weight = like.weight
        self.variance_epsilon = like.variance_epsilon

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * (x.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()


def _exact(device: torch.device) -> Backbone:
    """The embedded backbone in float64 throughout."""
    backbone = load_backbone(Backbone.Config(precision="float64", device=str(device)))
    for name, module in list(backbone.model.named_modules()):
        if type(module).__name__.endswith("RMSNorm"):
            parent, _, child = name.rpartition(".")
            setattr(backbone.model.get_submodule(parent), child, _Norm(module))
    return backbone


def _as_is(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    return step


def _gap(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference over the largest entry."""
    theirs = theirs.detach()
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-12))
