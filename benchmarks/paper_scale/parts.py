"""Where the time of sampling and of a training step goes at the paper's scale."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.device import forget_peak, peak_bytes, timed
from benchmarks.paper_scale.engine import Engine
from holdfast.allocation.base import Opening
from holdfast.anchors.base import TaskStart
from holdfast.anchors.kfac import quadratic_form
from holdfast.backbone.curvature import Curvature, named
from holdfast.backbone.generation.nucleus import nucleus_sample, uniforms_a_draw
from holdfast.backbone.generation.steps import steps_for
from holdfast.learning.learner import Lesson
from holdfast.learning.progress import Progress
from holdfast.learning.teacher import states_of
from holdfast.learning.training import Past, optimise, updates_since

_REPEATS = 10
_NAMED = 16  # kernels, the dearest


@torch.no_grad()
def draw_and_step(engine: Engine) -> list[tuple[str, str]]:
    """Milliseconds of one forward step of all samples, and of drawing their tokens."""
    backbone, sampling = engine.learner.backbone, engine.config.sampling
    device = engine.device
    steps = steps_for(backbone)
    ids = torch.full((sampling.samples,), backbone.seed_token, device=device)
    # As often as it takes to have recorded a step, where steps are recorded.
    for _ in range(4):
        logits = steps(ids)
    forward = timed(device, lambda: [steps(ids) for _ in range(_REPEATS)])
    logits = logits.float() / sampling.temperature
    shape = (sampling.samples, *uniforms_a_draw(device, sampling.top_p))
    noise = torch.rand(shape, device=device)

    def draw() -> None:
        for _ in range(_REPEATS):
            nucleus_sample(logits, noise, sampling.top_p, sampling.top_k)

    draw()
    drawing = timed(device, draw)
    each = 1000 / _REPEATS
    return [
        ("a step of all samples, few positions filled", f"{each * forward:.3g} ms"),
        ("drawing their tokens", f"{each * drawing:.3g} ms"),
    ]


def curvature_parts(engine: Engine) -> list[tuple[str, str]]:
    """The Fisher pass of the third task's own sequences, and the anchor's term with its gradient.

    S and G are kept as they are by default: whole where they are narrow, by eigenpairs elsewhere.
    """
    learner, device, sequences = engine.learner, engine.device, engine.sequences(2)
    known: list[Curvature] = []

    def look() -> None:
        known[:] = [learner.curvature_on(sequences, "own curvature")]

    look()
    forget_peak(device)
    looking = timed(device, look)
    peak = peak_bytes(device)
    learner.adapters.fresh(engine.config.seed, learner.completed + 1)
    changes, parameters = updates_since(learner.adapters), learner.adapters.parameters

    def hold() -> None:
        for _ in range(_REPEATS):
            torch.autograd.grad(quadratic_form(changes(parameters), known[0]), parameters)

    hold()
    holding = timed(device, hold) / _REPEATS
    taken = sum(one.numel() * one.itemsize for one in named(known[0]).values())
    return [
        (f"Fisher pass of {len(sequences)} items", f"{looking:.3g} s, peak {peak / 2**30:.1f} GiB"),
        ("the term and its gradient", f"{1000 * holding:.3g} ms a step"),
        ("S and G, once", f"{taken / 2**30:.2f} GiB"),
    ]


def step_profile(engine: Engine) -> list[tuple[str, str]]:
    """The dearest kernels of a few steps of the next task, which is left unfinished."""
    assert engine.report is not None
    learner, task = engine.learner, engine.learner.completed + 1
    sequences = engine.sequences(0)[: engine.config.optim.batch_size]
    replay = engine.report.replay[: len(sequences)]
    backbone = learner.backbone
    past = Past(replay, [], states_of(backbone, replay), states_of(backbone, sequences), None)
    learner.allocation.begin(learner.adapters, Opening(task, engine.config.seed))
    start = TaskStart(task, learner.adapters.parameters.detach())
    for _, anchor in learner.anchors:
        anchor.begin(start)
    on_gpu = engine.device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as seen:
        timed(engine.device, lambda: optimise(learner, task, Lesson(sequences), past, Progress()))
    steps = engine.config.optim.epochs
    spent = [
        (one.self_device_time_total if on_gpu else one.self_cpu_time_total, one.count, one.key)
        for one in seen.key_averages()
    ]
    spent.sort(reverse=True)
    whole = sum(time for time, _, _ in spent)
    named = [
        (key[:70], f"{time / steps / 1000:.3g} ms, {time / whole:.1%}, {count / steps:.0f} calls")
        for time, count, key in spent[:_NAMED]
    ]
    calls = sum(count for _, count, _ in spent) / steps
    return [("all kernels", f"{whole / steps / 1000:.3g} ms, {calls:.0f} calls"), *named]
