"""What `holdfast doctor` predicts beside what a run takes: memory by phase, disk and time.

    python -m benchmarks.prediction_error [--models embedded hundred-million] [--methods TAG ...]

Each run is a process of its own. Tensors are counted exactly (:mod:`benchmarks.live_memory`);
beside them stands the resident memory that the process gained, which the allocator rounds up. Times
are those of a second run, in which nothing is counted. Every sample runs to its limit, as the
prediction takes it to.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.answering import NO_TOKEN
from benchmarks.children import ask, peak_resident
from benchmarks.live_memory import LiveMemory, PhasePeaks
from benchmarks.record import Report, Table, markdown
from holdfast.backbone.load import load_shape, load_tokenizer
from holdfast.evaluation.recall import Recall
from holdfast.learning import boundary, trajectory
from holdfast.learning.config import RunConfig
from holdfast.learning.progress import Stopwatch
from holdfast.learning.trajectory import Trajectory
from holdfast.prediction.lengths import Lengths
from holdfast.prediction.predict import Machine, Prediction
from holdfast.prediction.rates import processor_rates
from holdfast.recipes import recipe

METHODS = ("vanilla", "si_sd_replay_merge", "kfac_merge")
# Small enough for a test; of each phase enough to be above what is always there.
SMALL = (
    "stream.tasks=2", "stream.items_per_task=16", "optim.epochs=1", "sampling.samples=16",
    "sampling.max_new_tokens=50", "evaluation.max_new_tokens=16", "keep.snapshot_every=2",
)  # fmt: skip
HUNDRED_MILLION = (
    "stream.tasks=2", "stream.items_per_task=8", "optim.epochs=1", "sampling.samples=4",
    "sampling.max_new_tokens=16", "evaluation.max_new_tokens=1", "evaluation.rows=horizon",
)  # fmt: skip


def write_hundred_million(directory: Path) -> None:
    """A model of 100 M random parameters with the embedded tokenizer, as save_pretrained has it."""
    tokenizer = load_tokenizer("embedded")
    config = Qwen2Config(
        vocab_size=32_000,
        hidden_size=640,
        intermediate_size=2_816,
        num_hidden_layers=12,
        num_attention_heads=10,
        num_key_value_heads=5,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen2ForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def configured(model: str, method: str, settings: tuple[str, ...]) -> RunConfig:
    named = (f"backbone.name={model}", f"method={method}")
    return RunConfig.of(recipe("paper"), [*named, *settings])


def observed(
    model: str, method: str, settings: tuple[str, ...], counted: bool = True
) -> dict[str, Any]:
    """Run it here. peaks: bytes of tensors by phase; ready: before the first; resident: MiB that
    this process gained; undecided: the largest share of a row that was decoded; disk: bytes of
    every file; seconds: of the last task by phase. counted: False for times alone.
    """
    config = configured(model, method, settings)
    with tempfile.TemporaryDirectory() as folder:
        run = Trajectory(config, Path(folder) / "run")
        before = peak_resident()
        memory, peaks, shares = LiveMemory(), dict[str, int](), list[float]()
        memory.leave_out_what_exists()
        learner = run.learner()
        known: Any = learner.backbone
        known.stop_tokens = frozenset({NO_TOKEN})
        gc.collect()
        memory.count_what_exists()
        ready = memory.live
        with _watched(memory, peaks) if counted else nullcontext(), _decoding(shares):
            run.advance()
        files = [path for path in run.directory.rglob("*") if path.is_file()]
        event = json.loads((run.directory / "log.jsonl").read_text().splitlines()[-1])
        return {
            "ready": ready,
            "peaks": peaks,
            "resident": peak_resident() - before,
            "undecided": max(shares),
            "state": event["state_bytes"],
            "disk": sum(path.stat().st_size for path in files),
            "seconds": event["seconds"],
        }


def predicted(
    model: str, method: str, settings: tuple[str, ...], undecided: float = 1.0
) -> Prediction:
    """What is said of the same run; undecided: the share of answers that were decoded."""
    config = configured(model, method, settings)
    tokenizer = load_tokenizer(model)
    stream = trajectory.load_stream(config.stream)
    lengths = replace(Lengths.of(config, stream, tokenizer), undecided=undecided)
    found = Prediction.of(config, load_shape(model), tokenizer, lengths, Machine("cpu"))
    return replace(found, machine=Machine("cpu", rates=processor_rates(found.shape.weight_bytes)))


@contextmanager
def _watched(memory: LiveMemory, peaks: dict[str, int]) -> Iterator[None]:
    watch: Callable[[], Stopwatch] = partial(PhasePeaks, memory, peaks)
    with ExitStack() as stack:
        for place in (boundary, trajectory):
            stack.enter_context(patch.object(place, "Stopwatch", watch))
        stack.enter_context(memory)
        yield


@contextmanager
def _decoding(shares: list[float]) -> Iterator[None]:
    """Within the block the decoded share of every row is added to ``shares``."""
    ask_all = Recall.verdicts

    def verdicts(self: Recall, items: Any) -> Any:
        found = ask_all(self, items)
        shares.append(sum(one.decoded for one in found) / len(found))
        return found

    with patch.object(Recall, "verdicts", verdicts):
        yield


def beside(model: str, name: str, methods: tuple[str, ...], settings: tuple[str, ...]) -> Table:
    """Every phase of every method, predicted beside measured."""
    rows = []
    for method in methods:
        given = (model, method, settings)
        found = ask("benchmarks.prediction_error", "observed", *given)
        timed = ask("benchmarks.prediction_error", "observed", *given, False)
        said = predicted(*given, found["undecided"])
        assert said.times is not None
        seconds = said.times.of_task(said.lengths.tasks)
        for phase, peak in said.memory.items():
            measured = found["ready"] if phase == "load" else found["peaks"][phase]
            total = peak.total - (peak.device["working memory"] if phase == "load" else 0)
            spent = timed["seconds"].get(phase, 0.0) if phase in seconds else None
            rows.append([method, phase, *_beside(total / 2**20, measured / 2**20)])
            rows[-1] += _beside(seconds[phase], spent) if spent else ["", "", ""]
        whole = said.needed / 2**20
        rows.append([method, "whole process", *_beside(whole, found["resident"]), "", "", ""])
        state = sum(said.disk.state(said.lengths.tasks).values()) / 2**20
        rows.append([method, "state on disk", *_beside(state, found["state"] / 2**20), "", "", ""])
    heads = ["method", "phase", "predicted MiB", "measured MiB", "ratio", "predicted s"]
    return Table(name, [*heads, "measured s", "ratio"], rows)


def _beside(said: float, measured: float) -> list[str]:
    return [f"{said:.3g}", f"{measured:.3g}", f"{said / measured:.2f}"]


def main() -> None:
    """Print one table a model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prediction_error")
    parser.add_argument("--models", nargs="+", choices=_MODELS, default=list(_MODELS))
    parser.add_argument("--methods", nargs="+", default=METHODS)
    chosen = parser.parse_args()
    found = [_MODELS[name](tuple(chosen.methods)) for name in chosen.models]
    about = "Tensors by phase, exact; the resident memory that a process gained; state on disk."
    print(markdown([Report("prediction_error", "Predicted and measured", about, tables=found)]))


def _embedded(methods: tuple[str, ...]) -> Table:
    return beside("embedded", "The embedded model", methods, SMALL)


def _hundred_million(methods: tuple[str, ...]) -> Table:
    with tempfile.TemporaryDirectory() as folder:
        write_hundred_million(Path(folder))
        name = "A model of 100 M random parameters"
        return beside(folder, name, methods, HUNDRED_MILLION)


_MODELS = {"embedded": _embedded, "hundred-million": _hundred_million}


if __name__ == "__main__":
    main()
