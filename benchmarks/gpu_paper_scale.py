"""The paper's protocol on one GPU with a 4B backbone: what a task costs, in one call.

    python -m benchmarks.gpu_paper_scale [--tokenizer DIR] [--out DIR] [--compile]

Correctness comes first; a check that fails ends the call before anything is timed. The result is
rewritten after every phase, so that a call that is cut off has still said something.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from benchmarks.device import description
from benchmarks.paper_scale.checks import CheckError, checks
from benchmarks.paper_scale.engine import (
    PAPER,
    TINY,
    Engine,
    Sizes,
    random_backbone,
    scale_configuration,
)
from benchmarks.paper_scale.parts import curvature_parts, draw_and_step, step_profile
from benchmarks.paper_scale.recipe import Recipe
from benchmarks.paper_scale.record import NAME, Record
from benchmarks.record import DEFAULT_OUT, number
from benchmarks.storage import formula
from holdfast.backbone.generation.steps import can_cache
from holdfast.learning.learner import Sequences
from holdfast.prediction.rates import Rates, rates_on

_GB = 1e9


def measure(
    record: Record, sizes: Sizes, tokenizer: str, device: torch.device, dtype: torch.dtype
) -> None:
    """Check, measure the engine, forget it, measure the reference recipe."""
    for check in record.phase("checks", lambda: checks(device)) or []:
        record.say("Checks, before anything was timed", check.name, check.found)
    if record.failed:
        raise CheckError("the checks could not be made; see above")
    rates = record.phase("rates of the device", lambda: rates_on(device, dtype, 2**20))
    assert rates is not None
    said = f"{rates.flops / 1e12:.3g} Tflop/s, {rates.bytes / 1e9:.4g} GB/s"
    record.say("Device", "measured rates", said)

    def load() -> Any:
        tokens = AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False)
        return random_backbone(sizes, tokens, device, dtype)

    engine = record.phase("the engine's model", lambda: Engine(sizes, load()))
    if engine is None:
        return
    _engine(record, engine, rates)
    given = engine.given()
    tasks = engine.stream.tasks
    asked = [item for task in tasks[: sizes.row_tasks] for item in task.items]
    del engine
    _forget(device)
    config = scale_configuration(sizes)
    recipe = record.phase("the reference's model", lambda: Recipe(load(), config))
    if recipe is not None:
        _recipe(record, recipe, sizes, asked, *given)
    record.write()


def _engine(record: Record, engine: Engine, rates: Rates) -> None:
    """The engine's rows."""
    decoder = engine.learner.backbone.decoder
    way = "written out" if decoder is not None else "the model's own modules"
    record.say("Device", "decoder in training", way)
    if not can_cache(engine.learner.backbone):
        raise CheckError("the model errs with a cache here, and would be asked without one")
    record.phase("warm-up: two short tasks", engine.warm_up)
    learning = record.phase("a whole task", engine.whole_task)
    if learning is not None:
        _task_rows(record, engine, rates)
    row = record.phase("a row, twice", engine.row)
    if row is not None:
        said = f"{engine.sizes.row_tasks} tasks of {engine.sizes.items} items; {row[0]:.3g} s"
        said += " with its questions tokenised; every answer taken to be right after the pass"
        record.found("row", row[1], rates.seconds(engine.row_work()), said)
    if learning is not None:
        _commit_rows(record, engine)
        both = record.phase("a row and its commit", engine.row_and_commit)
        if both is not None:
            said = f"with row and commit, which take {both:.3g} s together"
            record.found("whole task", learning + both, note=said)
    peaks = engine.watch.peaks
    if peaks:
        highest = max(peaks, key=lambda name: peaks[name])
        record.found("peak memory", peaks[highest] / _GB, note=f"in {highest}")
    for name, peak in peaks.items():
        record.say("Peak memory by phase, GB", name, f"{peak / _GB:.3g}")
    _where_time_goes(record, engine)


def _commit_rows(record: Record, engine: Engine) -> None:
    """The rows of a commit on its own."""
    commit = record.phase("a commit", engine.commit)
    if commit is None:
        return
    record.found("commit", commit[0], note="on its own; a run writes it while it asks for its row")
    stored = formula(engine.learner, engine.config, task=3)
    once = f"; and {engine.copy_bytes() / _GB:.3g} for its share of the dense copies"
    said = "by formula " + ", ".join(f"{k} {v / _GB:.3g}" for k, v in stored.items()) + once
    record.found("bytes committed", commit[1] / _GB, note=said)


def _task_rows(record: Record, engine: Engine, rates: Rates) -> None:
    """The rows of one task's phases and steps."""
    seconds = engine.watch.seconds
    record.say("Device", "sampling", "recorded steps" if engine.recorded else "plain steps")
    work = {"sampling": engine.sampling_work(), "teacher": engine.teacher_work()}
    for name in ("sampling", "teacher", "boundary"):
        counted = rates.seconds(work[name]) if name in work else None
        record.found(name, seconds[name], counted)
    step = rates.seconds(engine.step_work())
    spread = f"{min(engine.steps):.4g} to {max(engine.steps):.4g}"
    said = f"median of {len(engine.steps)}, {spread}"
    record.found("training step", statistics.median(engine.steps), 1000 * step, said)
    record.found("training", seconds["training"], step * (len(engine.steps) + 1))


def _where_time_goes(record: Record, engine: Engine) -> None:
    """What no target asks for, and explains the rows."""
    undecided = record.phase("one task's answers decoded", engine.undecided)
    if undecided is not None:
        said = f"{undecided[0]:.3g} s, {undecided[1]} of {engine.sizes.items} decoded"
        record.say("Device", "recall of one task where no box opens", said)
    if engine.report is None:
        return
    for what, found in record.phase("parts of sampling", lambda: draw_and_step(engine)) or []:
        record.say("Where the time of sampling goes", what, found)
    for what, found in record.phase("curvature", lambda: curvature_parts(engine)) or []:
        record.say("The curvature anchor", what, found)
    for what, found in record.phase("profile of steps", lambda: step_profile(engine)) or []:
        record.say("Where the time of a training step goes", what, found)


def _recipe(
    record: Record,
    recipe: Recipe,
    sizes: Sizes,
    asked: list[Any],
    sequences: Sequences,
    replay: Sequences,
    steps: int,
) -> None:
    """The recipe's parts, extrapolated to the same task and row."""
    title = "The reference recipe, extrapolated from timed parts"
    record.phase("recipe: first task", lambda: recipe.first_task(sequences))
    sampling = record.phase("recipe: sampling", recipe.sampling)
    item = record.phase("recipe: row", lambda: recipe.row(asked, sizes.answer))
    step = record.phase("recipe: steps", lambda: recipe.step(sequences, replay))
    if sampling is None or item is None or step is None:
        return
    parts = {
        "sampling": (sampling[0], sampling[1]),
        "training with its teacher": (steps * step[0], f"{step[0]:.3g} s a step, from {step[1]}"),
        "row": (len(asked) * item[0], f"{item[0]:.3g} s an item, from {item[1]}"),
    }
    for name, (seconds, said) in parts.items():
        record.say(title, name, f"{number(seconds)} s ({said})")
    whole = sum(seconds for seconds, _ in parts.values())
    record.say(title, "whole task", f"{number(whole)} s")
    ours, row = (record.rows[name].measured for name in ("whole task", "row"))
    if ours is not None and row is not None:
        without = (whole - parts["row"][0]) / (ours - row)
        note = f"extrapolated; {without:.3g}x where neither makes a row"
        record.found("reference recipe over whole task", whole / ours, note=note)


def _forget(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def main(arguments: list[str] | None = None) -> int:
    """Measure, write, print; 1 where a check or a phase failed, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{NAME}", description=__doc__)
    parser.add_argument("--tokenizer", help="directory of a tokenizer; default: the embedded one")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, on the CPU")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False)
    chosen = parser.parse_args(arguments)
    if not chosen.tiny and not torch.cuda.is_available():
        print("this needs an NVIDIA GPU; --tiny runs the same on the CPU", file=sys.stderr)
        return 2
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    device = torch.device("cpu") if chosen.tiny else torch.device("cuda", 0)
    dtype = torch.float32 if chosen.tiny else torch.bfloat16
    sizes = replace(TINY if chosen.tiny else PAPER, compile=chosen.compile)
    embedded = str(files("holdfast.backbone") / "embedded")
    record = Record(chosen.out, _about(sizes, chosen), description(device), asked=not chosen.tiny)
    begin = time.perf_counter()
    try:
        measure(record, sizes, chosen.tokenizer or embedded, device, dtype)
    except CheckError as error:
        print(f"check failed, nothing was timed: {error}", file=sys.stderr)
        return 1
    print(record.markdown())
    print(f"\n{time.perf_counter() - begin:.0f} s; written to {chosen.out}", file=sys.stderr)
    return 1 if record.failed else 0


def _about(sizes: Sizes, chosen: argparse.Namespace) -> str:
    shape = "Tiny shape, for correctness only" if chosen.tiny else "Qwen3-4B's shape"
    tokens = "the embedded tokenizer" if chosen.tokenizer is None else "the given tokenizer"
    fused = "compiled" if chosen.compile else "not compiled"
    return (
        f"{shape}, random weights; si_sd_replay_merge of rank {sizes.rank}, {sizes.items} items, "
        f"{sizes.epochs} epochs of minibatches of 8, {sizes.samples} replay sequences of "
        f"{sizes.length} tokens that never stop early; items in tokens of {tokens}; element-wise "
        f"parts {fused}. Phases are timed from an idle device to an idle device, steps by the "
        "device's own marks. The floor is worked out on paper for an H200; the counted floor "
        "divides operations and bytes by rates measured in this call. The reference recipe is "
        "timed on parts and extrapolated."
    )


if __name__ == "__main__":
    sys.exit(main())
