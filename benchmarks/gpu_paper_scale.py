"""Measure what a task of the paper costs on one GPU with a 4B backbone.

    python -m benchmarks.gpu_paper_scale [--tokenizer DIR] [--out DIR]

Weights are random, replay sequences never stop early, and every answer is verified once and then
counts as right. A few steps alternate with those of the plain reference.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

from benchmarks.pairing import Measurement, alternate, synchronise
from benchmarks.record import DEFAULT_OUT, Report, Table, markdown, number, write
from benchmarks.training_step import Steps
from benchmarks.twins import FULL, NO_TOKEN, Twins, configuration, items
from holdfast.evaluation import recall as recall_module
from holdfast.evaluation.recall import Recall, follow
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, Sequences, TaskData
from holdfast.learning.progress import Progress
from holdfast.learning.task import learn_task
from holdfast.model.backbone import Backbone
from holdfast.streams import Stream

NAME = "gpu_paper_scale"
# Attainable on one NVIDIA H200, by calculation: seconds, for a step milliseconds.
REACH = {"sampling": 3.0, "teacher": 2.5, "training": 15.0, "a step, ms": 110.0, "row": 5.0}
PAPER = {"layers": 36, "width": 2560, "heads": 32, "kv_heads": 8, "head": 128, "feed": 9728}
TINY = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "head": 16, "feed": 128}
PAPER_COUNTS = {"rank": 32, "items": 100, "epochs": 10, "samples": 300, "length": 384, "row": 50}
TINY_COUNTS = {"rank": 4, "items": 8, "epochs": 2, "samples": 16, "length": 12, "row": 3}


def random_backbone(shape: dict[str, int], words: int, tokenizer: Any, device: str) -> Backbone:
    """A Qwen3 model with random weights; words: the size of its vocabulary."""
    config = Qwen3Config(
        vocab_size=words,
        hidden_size=shape["width"],
        intermediate_size=shape["feed"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"],
        head_dim=shape["head"],
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=None,
    )
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    torch.backends.cuda.enable_cudnn_sdp(False)  # as load_backbone does
    return Backbone(model, tokenizer)


class Watch:
    """A stopwatch for the engine that waits for the GPU: seconds and peak bytes of every phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        synchronise()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        yield
        synchronise()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
        if torch.cuda.is_available():
            self.peaks[name] = max(self.peaks.get(name, 0), torch.cuda.max_memory_allocated())


def a_task(learner: Learner, stream: Stream, sizes: dict[str, int]) -> Watch:
    """Measure the third task and a row; two short tasks before it warm up every tensor shape."""
    batch = learner.config.optim.batch_size
    watch = Watch()
    learner.backbone.stop_tokens = frozenset({NO_TOKEN})
    for task, count in zip(stream.tasks, (batch, 2 * batch), strict=False):
        learn_task(learner, TaskData(learner.encode(task)[:count]), Progress())
    third = TaskData(learner.encode(stream.tasks[2]))
    with patch("holdfast.learning.task.Stopwatch", lambda: watch):
        report = learn_task(learner, third, Progress())
    assert {len(sequence) for sequence in report.replay} == {sizes["length"] + 1}
    steps = sizes["epochs"] * -(-len(third.sequences) // batch)
    watch.seconds["a step, ms"] = 1000 * watch.seconds["training"] / steps

    def recalled(backbone: Any, prompts: Any, answers: Any, **limits: Any) -> Sequences:
        follow(backbone, prompts, answers, **limits)
        return [list(answer) for answer in answers]

    recall = Recall(learner.backbone, learner.template, learner.config.evaluation, exact_case=True)
    tasks = stream.tasks[: sizes["row"]]
    with patch.object(recall_module, "follow", recalled), watch.phase("row, tokenised"):
        recall.row(tasks)
    with patch.object(recall_module, "follow", recalled), watch.phase("row"):
        recall.row(tasks)
    return watch


def a_step(config: RunConfig, load: Any, stream: Stream, rounds: int) -> Measurement:
    """Time a step of task 2 against the reference, which runs its teacher at every step."""
    twins = Twins(config, load)
    twins.learner.backbone.stop_tokens = frozenset({NO_TOKEN})
    batch = config.optim.batch_size
    first, second = (twins.learner.encode(task)[:batch] for task in stream.tasks[:2])
    twins.both_learn(first)
    steps = Steps(twins, second)
    ours, theirs = alternate(rounds, steps.engine, steps.reference)
    scale = 1000 / steps.count
    return Measurement(
        "a step", "ms", [scale * value for value in ours], [scale * value for value in theirs]
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, write and print; return 2 without a GPU."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{NAME}", description=__doc__)
    parser.add_argument("--tokenizer", help="directory of a tokenizer; default: the embedded one")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, on the CPU")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    options = parser.parse_args(arguments)
    if not options.tiny and not torch.cuda.is_available():
        print("this needs an NVIDIA GPU; --tiny runs the same on the CPU", file=sys.stderr)
        return 2
    shape, sizes = (TINY, TINY_COUNTS) if options.tiny else (PAPER, PAPER_COUNTS)
    directory = options.tokenizer or str(files("holdfast.model") / "embedded")
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
    words = len(tokenizer) + 1 if options.tiny else 151_936
    config = configuration(
        FULL,
        lora={"rank": sizes["rank"], "alpha": 2.0 * sizes["rank"]},
        optim={"epochs": sizes["epochs"]},
        sampling={"samples": sizes["samples"], "max_new_tokens": sizes["length"]},
    )
    stream = items(max(3, sizes["row"]), sizes["items"])

    def load() -> Backbone:
        return random_backbone(shape, words, tokenizer, "cpu" if options.tiny else "cuda")

    watch = a_task(Learner(config, load()), stream, sizes)
    rows = [
        [name, number(value), number(None if options.tiny else REACH.get(name))]
        for name, value in watch.seconds.items()
    ]
    rows += [[f"peak of {name}, GB", number(peak / 1e9), ""] for name, peak in watch.peaks.items()]
    about = (
        f"{'A tiny shape' if options.tiny else 'The shape of Qwen3-4B'}, random weights; {FULL} of "
        f"rank {sizes['rank']}, {sizes['items']} items, {sizes['epochs']} epochs of minibatches of "
        f"8, {sizes['samples']} replay sequences of {sizes['length']} tokens, a row of "
        f"{sizes['row']} tasks. The pair is a minibatch of the second task."
    )
    tables = [Table("A task, seconds by phase", ["what", "measured", "reach"], rows)]
    pair = a_step(config, load, stream, rounds=1 if options.tiny else 3)
    report = Report(NAME, "The paper's scale on one GPU", about, [pair], tables)
    write(options.out, NAME, [report])
    print(markdown([report]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
