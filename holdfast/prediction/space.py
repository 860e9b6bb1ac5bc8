"""Predicted bytes of a run: the peak memory of each phase of the last task, and its files.

The sizes of weights, factors and mechanisms' states follow from their shapes. The memory of a pass
is counted on fake tensors, with one layer and with two; each further layer adds the difference.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from holdfast.learning.state import history
from holdfast.model.generation.decoding import bytes_per_token
from holdfast.model.kronecker import curvature_numbers
from holdfast.prediction.workload import Rehearsal, Workload

Parts = dict[str, int]

_HEADER = 115  # bytes of a tensor's name, type, shape and place in a file
_CELL = 28  # bytes of an entry of the matrix, in two files together
_LOG, _TERM = 600, 40  # bytes of a task's line in the log, and of a term's mean in one epoch
# Maps of one layer that read the same tensor, and so share the S of their curvature.
_READ_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_STORED = {"int8": 1.0, "nf4": 0.5625}  # bytes of a quantized weight; nf4: a scale per 64 weights


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of tensors that operations create in its block. live: now; peak: most."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: dict[int, tuple[int, weakref.ref[Any]]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self._add(value.untyped_storage())
        return result

    def _add(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known[key] = size, weakref.ref(storage, lambda _: self._freed(key))
            self.live += size
            self.peak = max(self.peak, self.live)

    def _freed(self, key: int) -> None:
        self.live -= self._known.pop(key)[0]


class PredictedMemory:
    """The predicted memory of a run, in bytes. precision: the name of the model's dtype.

    available: bytes of the device, which limit how many sequences are sampled at once; or None.
    """

    def __init__(self, work: Workload, precision: str, available: int | None) -> None:
        self.work, self.precision, self.available = work, precision, available
        self.sample = work.config.sampling.max_new_tokens + 1  # tokens, the first included
        whole = Rehearsal(work, precision)
        self.layers, self.maps = len(whole.stack), whole.maps
        self.dense = sum(d_in * d_out for d_in, d_out in self.maps.values())
        self.inputs = sum(d_in for d_in, _ in self.maps.values())
        outputs = sum(d_out for _, d_out in self.maps.values())
        self.vocabulary, self.width = whole.head.weight.shape
        self.scalar: int = whole.head.weight.itemsize
        self.wide = max(4, self.scalar)  # bytes of a number in factors and in states for them
        self.trainable = sum(
            parameter.numel() for parameter in whole.peft.parameters() if parameter.requires_grad
        )
        self.vector = self.wide * self.trainable
        numbers = curvature_numbers(_readers(self.maps), work.config.curvature)
        self.curvature = self.wide * numbers * work.kfac  # S and G of all adapted maps
        self.positions = self.scalar * work.positions * (self.inputs + outputs)  # x and g
        self.parameters = whole.peft.num_parameters() - self.trainable
        small = _STORED.get(work.config.backbone.quantization, self.scalar)
        in_layers = sum(weight.numel() for weight in whole.stack.parameters()) - self.trainable
        self.weights = round(self.scalar * self.parameters - (self.scalar - small) * in_layers)
        self.masters = small < 4 and work.config.lora.merge_precision == "float32"
        self.token = bytes_per_token(whole.model)  # keys and values of one token

    @cached_property
    def phases(self) -> dict[str, Parts]:
        """The peak bytes of each phase by part; the phases are in the order of a task."""
        work, settings = self.work, self.work.config.evaluation
        logits = (self.scalar + 20) * self.rows * self.vocabulary  # logits, p and its ranks
        length = round(work.mean - work.answer) + settings.max_new_tokens
        rows = min(work.tasks * work.items, max(1, settings.tokens_in_cache // length))
        step, verifying = self.passes
        reads_curvature = work.kfac or bool(work.positions)
        own = work.config.kfac.source == "own"
        phases = {
            "sampling": {"keys and values": self.rows * self.sample * self.token, "logits": logits},
            "training": {
                "AdamW": 2 * self.vector,
                "previous model's states": self.scalar * self.width * work.asks,
                "paths": 3 * self.vector * work.needs("fit_gradient"),
                "a step": step,
            },
            # S and G of the task, and the mean of these and the past's.
            "boundary": {"new S and G": 2 * own * self.curvature, "a pass": step * reads_curvature},
            "evaluation": {"a pass": verifying, "keys and values": rows * length * self.token},
        }
        return {
            phase: {part: size for part, size in {**self.always, **parts}.items() if size}
            for phase, parts in phases.items()
            if any(parts.values())
        }

    @cached_property
    def always(self) -> Parts:
        """Bytes in memory in every phase: weights, factors with their gradients, and states."""
        config, composition = self.work.config, self.work.config.composition
        folds = config.allocation().after_task != "keep"
        of_rule = {"olora": config.lora.rank, "osrm": 1}.get(composition.allocation, 0)
        weight_anchors = len({"si", "online_ewc"} & set(composition.anchors))
        own = config.kfac.source == "own"
        return {
            "weights": self.weights,
            "float32 matrices": 4 * self.dense * (folds and self.masters),
            "factors": 2 * self.vector,
            "mechanisms": 2 * self.vector * weight_anchors
            + self.wide * of_rule * self.inputs * self.work.tasks,
            "positions": self.positions,
            # With general text: the past's, the text's, and the mean of both that is the penalty's.
            "S and G": (3 if own and config.sampling.general else 1) * self.curvature,
            "general text": self.general,
        }

    @property
    def general(self) -> int:
        """Bytes of the general text that an anchor keeps: hidden states and tokens."""
        rows, length = self.work.general
        size: int = rows * length * (self.scalar * self.width + 8)
        return size

    @cached_property
    def rows(self) -> int:
        """How many sequences are sampled at once: at most what half of the free memory holds."""
        writes = max(self.work.writes, self.work.first_writes)
        rows = min(self.work.config.sampling.batch, writes)
        if self.available is None or not rows:
            return rows
        free = max(0, self.available - sum(self.always.values())) // 2
        return max(1, min(rows, free // (self.sample * self.token)))

    @cached_property
    def passes(self) -> tuple[int, int]:
        """Bytes of a forward and backward pass on a minibatch, and of an evaluation pass."""
        single, double = self._on_layers(1), self._on_layers(2)
        step, verifying = (
            a + (self.layers - 1) * max(0, b - a) for a, b in zip(single, double, strict=True)
        )
        return step, verifying

    def _on_layers(self, layers: int) -> list[int]:
        model, peaks = Rehearsal(self.work, self.precision, layers), []
        with FakeTensorMode(allow_non_fake_inputs=True):
            model.place(torch.device("cpu"))
            for work in (
                partial(model.gradient, self.work.rows),
                partial(model.forward, self.work.verified),
            ):
                with LiveTensors() as live:
                    work()
                peaks.append(live.peak)
        return peaks


def _readers(maps: dict[str, tuple[int, int]]) -> Iterable[tuple[int, list[int]]]:
    """For each tensor that maps read: its width d_in, and the d_out of each of these maps."""
    readers: dict[tuple[str, tuple[str, ...]], tuple[int, list[int]]] = {}
    for name, (d_in, d_out) in maps.items():
        parent, _, child = name.rpartition(".")
        family = next((group for group in _READ_TOGETHER if child in group), (child,))
        readers.setdefault((parent, family), (d_in, []))[1].append(d_out)
    return readers.values()


def written(memory: PredictedMemory, task: int) -> Parts:
    """Bytes of the state's files that the commit after a task adds, by kind.

    ``si`` and ``online_ewc`` refer to the task's factors, which are not stored again for them.
    """
    config, header = memory.work.config, _HEADER * len(memory.maps)
    anchors = set(config.composition.anchors)
    keeps_curvature = config.kfac.source == "own"  # else S and G are taken anew from samples
    merges_in = memory.wide if config.lora.merge_precision == "float32" else memory.scalar
    return {
        "factors": memory.vector + 2 * header,
        "dense matrices": (merges_in * memory.dense + header) * (_copied(memory, task) == task),
        "anchors and rule": len({"si", "online_ewc"} & anchors) * (memory.vector + 3 * _HEADER)
        + keeps_curvature
        * (1 + bool(config.sampling.general))
        * (memory.curvature + 2 * header * memory.work.kfac)
        + memory.positions
        + memory.general
        + (config.composition.allocation == "osrm") * (memory.wide * task * memory.inputs + header),
    }


def at_end(memory: PredictedMemory) -> Parts:
    """Bytes of everything in the directory after the last task, by kind.

    A merged model is stored as a copy of the dense matrices and the factors of the tasks since.
    """
    work, config, last = memory.work, memory.work.config, memory.work.tasks
    copied, new = _copied(memory, last), written(memory, last)
    needed = len(history(config.allocation().after_task, last, copied))
    epochs = config.optim.epochs_of(work.items) + config.optim.cooldown_of(work.items)
    terms = 1 + len(config.composition.anchors)
    sizes = {
        "factors": (last if config.keep.factors else needed) * new["factors"],
        "dense matrices": written(memory, copied)["dense matrices"] if copied else 0,
        "anchors and rule": new["anchors and rule"],
        "matrix and log": _CELL * (last + work.asked) + last * (_LOG + _TERM * epochs * terms),
    }
    return {kind: size for kind, size in sizes.items() if size}


def _copied(memory: PredictedMemory, task: int) -> int:
    """The task after which the dense matrices were last copied, 0 if never."""
    config = memory.work.config
    merges = config.allocation().after_task == "merge"
    return task - task % config.keep.snapshot_every if merges else 0
