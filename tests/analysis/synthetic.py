"""A writer of synthetic studies: directories as real ones are, in a second and without a model.

Recall fades exponentially with age, slower with every mechanism of the method; a seed changes it by
a few percent. The same arguments give the same bytes.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.paper.analysis.factorial import compositions
from holdfast.core.config import FORMAT, sha256_of
from holdfast.results.items import write_row
from holdfast.results.matrix import HEADER
from holdfast.streams import Template, symbol_qa

SEEDS = (41, 42, 43)
FACTORIAL = tuple(compositions())
PAPER = (*FACTORIAL, "online_ewc", "olora", "osrm", "si_sd_replay_olora", "si_sd_replay_osrm")
ADAPTER_BYTES = 4_000
ITEMS = 8  # of a task of a run that kept them
SPREAD = 0.01

# By what each mechanism multiplies the tasks until recall has fallen to 1/e.
_FACTOR = {"si": 1.1, "sd": 2.0, "replay": 4.0, "merge": 3.0, "olora": 2.8, "osrm": 2.5}


def counts(method: str, seed: int, tasks: int, items: int) -> NDArray[np.int64]:
    """Correct answers [tasks, tasks], indexed [after_task - 1, on_task - 1], fading with age."""
    age = np.subtract.outer(np.arange(tasks), np.arange(tasks)).clip(min=0)
    lifetime = float(np.prod([_FACTOR.get(part, 1.0) for part in method.split("_")]))
    jitter = np.random.default_rng([seed, *method.encode()]).normal(0, 0.05)
    recall = np.exp(-age / (lifetime * (1 + jitter)))
    return np.rint(items * recall).astype(np.int64)


def matrix_text(correct: NDArray[np.int64], items: int, emission: float = 1.0) -> str:
    """matrix.csv of counts [T, T], with nothing known of a task before its turn.

    emission: the least share of answers with a box; the correct ones have one.
    """
    boxed = round(emission * items)
    share = [f"{n},{items},{max(n, boxed)},{n / items!r}" for n in range(items + 1)]
    lines = [HEADER]
    for after_task in range(len(correct) + 1):
        row = correct[after_task - 1, :after_task] if after_task else ()
        lines += [f"{after_task},{task},{share[n]}" for task, n in enumerate(row, start=1)]
        if after_task < len(correct):
            lines.append(f"{after_task},{after_task + 1},{share[0]}")
    return "\n".join(lines) + "\n"


def write_trajectory(
    path: Path,
    method: str = "vanilla",
    seed: int = 41,
    tasks: int = 10,
    items: int = 20,
    *,
    correct: NDArray[np.int64] | None = None,
    learned: int | None = None,
    dataset: str = "symbol_qa",
    settings: Mapping[str, Any] | None = None,
    order_seed: int | None = None,
    emission: float = 1.0,
) -> None:
    """Write one trajectory.

    tasks: of the stream; learned: so many of them, all unless said; correct: counts [T, T] in
    place of the fading ones; settings: dotted, of config.json; emission: as in matrix_text.
    """
    learned = tasks if learned is None else learned
    correct = counts(method, seed, tasks, items) if correct is None else correct
    correct = correct[:learned, :learned]
    path.mkdir(parents=True, exist_ok=True)
    (path / "matrix.csv").write_text(matrix_text(correct, items, emission))
    config: dict[str, Any] = {
        "method": method,
        "seed": seed,
        "stream": {"name": dataset, "tasks": tasks, "order_seed": order_seed},
        "lora": {"rank": 32},
    }
    for key, value in (settings or {}).items():
        section, _, name = key.rpartition(".")
        config.setdefault(section, {})[name] = value
    record = {
        "format": FORMAT,
        "config": config,
        "identity": sha256_of(config),
        "numbers": config,
        "stream": {"name": dataset, "tasks": tasks, "fingerprint": sha256_of(dataset)},
        "backbone": {"name": "embedded", "fingerprint": sha256_of("embedded")},
        "versions": {"holdfast": "0.1.0"},
    }
    (path / "config.json").write_text(json.dumps(record, indent=1))
    grows = "olora" in method or "osrm" in method
    events = (
        {"event": "task", "task": task, "state_bytes": ADAPTER_BYTES * (task if grows else 1)}
        for task in range(1, learned + 1)
    )
    (path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def change(path: Path, **values: Any) -> None:
    """Give the ``config.json`` of a trajectory other values, as if it had begun with them."""
    recorded = json.loads((path / "config.json").read_text()) | values
    recorded["numbers"] = values.get("numbers", recorded["config"])
    recorded["config"] = values.get("config", recorded["config"] | recorded["numbers"])
    recorded["identity"] = sha256_of(recorded["numbers"])
    (path / "config.json").write_text(json.dumps(recorded, indent=1))


def key(method: str, seed: int, *rest: object) -> str:
    """The name of a trajectory's directory in a store."""
    return f"{method}-{seed}-{sha256_of([method, seed, *map(str, rest)])[:12]}"


def write_suite(
    directory: Path,
    methods: Iterable[str] = FACTORIAL,
    seeds: Iterable[int] = SEEDS,
    tasks: int = 10,
    items: int = 20,
    *,
    dataset: str = "symbol_qa",
    learned: Mapping[tuple[str, int], int] | None = None,
    absent: Iterable[tuple[str, int]] = (),
    tables: bool = True,
    store: Path | None = None,
) -> Path:
    """Write a suite; return its directory.

    learned: fewer tasks, by (method, seed); absent: cells that never began; tables: whether the
    suite has come to write ``cells.csv``; store: in place of ``cells/``.
    """
    _write_settings(directory, {"study": "suite", "stream": dataset, "settings": {}})
    absent, rows = set(absent), []
    for method, seed in itertools.product(methods, seeds):
        name = key(method, seed, dataset)
        done = (learned or {}).get((method, seed), tasks)
        if (method, seed) not in absent:
            path = (store or directory / "cells") / name
            write_trajectory(path, method, seed, tasks, items, learned=done, dataset=dataset)
        whole = done == tasks and (method, seed) not in absent
        row = {"method": method, "seed": seed, "horizon": tasks, "cell": name}
        rows.append(row | {"error": None if whole else "RuntimeError: out of memory"})
    if tables:
        _write_table(directory / "cells.csv", rows)
    return directory


def write_search(
    directory: Path,
    candidates: Mapping[str, Sequence[float]],
    horizons: Sequence[int] = (2, 4, 8),
    seeds: Sequence[int] = SEEDS,
    *,
    dataset: str = "symbol_qa",
    order_seed: int | None = 1234,
    cells: bool = True,
    items: int = 20,
) -> Path:
    """Write a search; return its directory.

    candidates: by name (``sd sd.strength=1``), the score at each horizon that it reaches:
    one that has fewer is eliminated there, a NaN is a failure. cells: whether to write the
    trajectories, whose matrices know nothing of the scores.
    """
    names = {name: [key(name.split()[0], seed, name, order_seed) for seed in seeds]
             for name in candidates}  # fmt: skip
    schedule = {"horizons": list(horizons), "survivors": ["half"] * (len(horizons) - 1)}
    settings = {"study": "search", "schedule": schedule, "seeds": list(seeds), "cells": names}
    _write_settings(directory, {**settings, "stream": sha256_of(dataset)})
    for name, scores in candidates.items() if cells else ():
        method, *settings = name.split()
        for seed, cell in zip(seeds, names[name], strict=True):
            write_trajectory(
                directory / "cells" / cell,
                method,
                seed,
                horizons[-1],
                items,
                learned=horizons[len(scores) - 1],
                dataset=dataset,
                settings={pair.split("=")[0]: float(pair.split("=")[1]) for pair in settings},
                order_seed=order_seed,
            )
    spread = np.linspace(-SPREAD, SPREAD, len(seeds)) if len(seeds) > 1 else np.zeros(1)
    rows = []
    for place, horizon in enumerate(horizons):
        going = {name: scores[place] for name, scores in candidates.items() if len(scores) > place}
        order = sorted(going, key=lambda name: (bool(np.isnan(going[name])), -going[name]))
        for rank, name in enumerate(order, start=1):
            failed = bool(np.isnan(going[name]))
            fate = "promoted" if len(candidates[name]) > place + 1 else "eliminated"
            fate = "finished" if place + 1 == len(horizons) else fate
            row = {"horizon": horizon, "rank": rank, "candidate": name, "method": name.split()[0]}
            row["score"] = None if failed else going[name]
            for seed, share in zip(seeds, going[name] + spread, strict=True):
                row[f"final_{seed}"] = None if failed else float(share)
            row["fate"] = "failed" if failed else fate
            row["error"] = "RuntimeError: diverged" if failed else None
            rows.append(row)
    _write_table(directory / "trace.csv", rows)
    return directory


def _write_settings(directory: Path, settings: Mapping[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "study.json").write_text(json.dumps({"format": FORMAT, **settings}, indent=1))


def _write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def verdicts(method: str, seed: int, tasks: int, items: int = ITEMS) -> NDArray[np.bool_]:
    """Whether an item is recalled, [row, task, item] from 0; the first items of a task go first."""
    correct = counts(method, seed, tasks, items)
    return np.arange(items) >= items - correct[:, :, None]


def asked(seed: int, task: int, items: int = ITEMS, samples: int = 40) -> list[tuple[int, int]]:
    """The task and the place of the item that each sample before a task asks; the newest most."""
    random = np.random.default_rng([seed, task])
    on_task = task - 1 - np.minimum(random.geometric(0.3, samples) - 1, task - 2)
    return list(zip(on_task.tolist(), random.integers(items, size=samples).tolist(), strict=True))


def write_kept(
    path: Path,
    method: str = "replay_merge",
    seed: int = 41,
    tasks: int = 6,
    items: int = ITEMS,
    *,
    samples: int = 40,
    of: Sequence[str] = ("items", "samples"),
) -> None:
    """Write a trajectory of Symbol-QA with what it kept; of the samples every fourth is wrong."""
    settings = {"template.append_eos": True, "stream.items_per_task": items}
    write_trajectory(path, method, seed, tasks, items, settings=settings)
    recalled = verdicts(method, seed, tasks, items)
    for row in range(1, tasks + 1) if "items" in of else ():
        each = {task: recalled[row - 1, task - 1].tolist() for task in range(1, row + 1)}
        write_row(path, row, each)
    if "samples" in of:
        template, stream = Template(Template.Config(append_eos=True)), symbol_qa(tasks, items, 42)
        for task in range(2, tasks + 1):
            texts = []
            for number, (on_task, place) in enumerate(asked(seed, task, items, samples)):
                text = template.text(stream.tasks[on_task - 1].items[place])
                texts.append(text if number % 4 else f"{template.asked(text)}\nAnswer: \\boxed{{}}")
            lines = (json.dumps({"tokens": [], "text": text}) + "\n" for text in texts)
            (path / "replay").mkdir(exist_ok=True)
            (path / "replay" / f"task-{task:04d}.jsonl").write_text("".join(lines))
