"""One task with its row, by the engine and by the plain reference, in alternation on one machine.

The reference is transformers + PEFT + `generate`: a copied teacher asked at every step, answers
generated one at a time. Both see the same minibatches, replay sequences and first factors.

    python benchmarks/against_reference.py [--rounds 3] [--markdown out.md]
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from itertools import islice
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from holdfast.backbone.load import load_backbone
from holdfast.core.seeding import derive
from holdfast.evaluation.recall import Recall
from holdfast.learning.boundary import learn_task
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner
from holdfast.learning.minibatches import current_minibatches, replay_minibatches
from holdfast.learning.progress import Progress
from holdfast.streams import symbol_qa
from reference.learner import run_task
from reference.recall import accuracy
from reference.replay import generate
from reference.state import Settings, State
from reference.state import Task as ReferenceTask

SECTIONS = {
    "template": {"append_eos": True},
    "optim": {"epochs": 2, "lr": 3e-3},
    "data": {"samples": 64, "max_new_tokens": 48, "generation_temperature": 1.0, "weight": 0.5},
}
ITEMS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["vanilla", "si_sd_replay_merge"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {method: measured(method, arguments.rounds) for method in arguments.methods}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of rounds\n")
    print("| method | phase | engine s | reference s | ratio |\n|---|---|---|---|---|")
    for method, phases in results.items():
        for phase, (ours, theirs) in phases.items():
            ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
            a, b = statistics.median(ours), statistics.median(theirs)
            print(f"| `{method}` | {phase} | {a:.2f} | {b:.2f} | {ratio:.1f}x |")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


def measured(method: str, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of every phase, engine and reference, round by round."""
    config = RunConfig.of({**SECTIONS, "method": method, "lora": {"dropout": 0.0}})
    tasks = symbol_qa(tasks=rounds + 1, items=ITEMS, seed=7).tasks
    learner = Learner(config, load_backbone())
    twin = load_backbone()
    if learner.replay is not None:
        twin.add_replay_token()
    settings, state = settings_of(config, twin), State(copy.deepcopy(twin.model))
    recall = Recall(learner.backbone, learner.template, exact_case=True)
    phases = {"task": ([], []), "row": ([], [])}
    for number, task in enumerate(tasks, start=1):
        sequences = learner.encode(task)
        start = time.perf_counter()
        report = learn_task(learner, sequences, Progress())
        learned = time.perf_counter()
        learner.adapters.evaluating()
        row = recall.row(tasks[:number])
        ours = (learned - start, time.perf_counter() - learned)

        given = reference_task(config, number, sequences, learner, report.replay)
        start = time.perf_counter()
        if given.replay_minibatches is not None:
            # The replay set itself is the engine's; drawing one is part of the task's time.
            teacher = state.backbone
            data = config.data
            generate(
                teacher, learner.backbone.seed_token, data.samples, data.generation_temperature,
                data.top_p, data.max_new_tokens, twin.eos_token, twin.pad_token, 32,
            )  # fmt: skip
        result = run_task(state, settings, given)
        learned = time.perf_counter()
        items = [item for task in tasks[:number] for item in task.items]
        share = accuracy(
            result.model, twin.tokenizer, [(i.question, i.answer, i.aliases) for i in items],
            learner.backbone.seed_token, False, 256,
        )  # fmt: skip
        theirs = (learned - start, time.perf_counter() - learned)
        same = sum(count.correct for count in row) / len(items)
        print(f"{method} task {number}: recall {same:.3f} and {share:.3f}", file=sys.stderr)
        if number > 1:  # the first task has no past and warms up
            for phase, a, b in zip(phases.values(), ours, theirs, strict=True):
                phase[0].append(a)
                phase[1].append(b)
    return phases


def settings_of(config: RunConfig, backbone) -> Settings:
    names = config.composition.anchors
    rules = {"shared": "shared", "merge": "merged", "olora": "o_lora", "osrm": "osrm"}
    return Settings(
        target_modules=config.lora.targets,
        rank=config.lora.rank,
        alpha=config.lora.alpha,
        allocation=rules[config.composition.allocation],
        dropout=0.0,
        pad_id=backbone.pad_token,
        learning_rate=config.optim.lr,
        weight_decay=config.optim.weight_decay,
        replay_weight=config.data.weight if "replay" in names else None,
        replay_temperature=config.data.temperature,
        function_strength=config.function.strength if "sd" in names else None,
        function_temperature=config.function.temperature,
        si_strength=config.si.strength if "si" in names else None,
        si_damping=config.si.damping,
    )


def reference_task(config, number, sequences, learner, replay) -> ReferenceTask:
    """The engine's own draws, handed to the reference."""
    seed, size = config.seed, config.optim.batch_size
    minibatches, partners = [], []
    for epoch in range(config.optim.epochs):
        current = current_minibatches(seed, number, epoch, len(sequences), size)
        minibatches += [[sequences[index] for index in chosen] for chosen in current]
        if replay:
            endless = replay_minibatches(seed, number, epoch, len(replay), size, 1)
            partners += [
                [replay[index] for index in chosen] for chosen in islice(endless, len(current))
            ]
    return ReferenceTask(
        sequences=sequences,
        minibatches=minibatches,
        minibatches_per_epoch=len(minibatches) // config.optim.epochs,
        replay_minibatches=partners or None,
        initial_factors=first_factors(config, number, learner),
    )


def first_factors(config: RunConfig, number: int, learner: Learner):
    """The factors that the engine opened the task with."""
    factors = {}
    for name, layer in learner.adapters.layers.items():
        source = torch.Generator().manual_seed(derive(config.seed, "factors", number, name))
        down = torch.empty(layer.down.shape)
        torch.nn.init.kaiming_uniform_(down, a=5**0.5, generator=source)
        factors[name] = (down, torch.zeros(layer.up.shape))
    return factors


if __name__ == "__main__":
    main()
