"""What a trajectory's directory holds after some tasks, and what each commit writes, in bytes."""

from __future__ import annotations

from holdfast.learning.continuation import history
from holdfast.prediction.memory import Memory, Parts

_HEADER = 115  # bytes of a tensor's name, type, shape and place in a file
_CELL = 28  # bytes of an entry of the matrix, which stands in two files
_LOG, _TERM = 600, 40  # bytes of a task's line in the log, and of a term's mean in one epoch


def written(memory: Memory, task: int) -> Parts:
    """The state's files that the commit after a task adds, by kind.

    What an anchor refers to is the task's factors, which have their own file.
    """
    config, header = memory.work.config, _HEADER * len(memory.maps)
    anchors = set(config.composition.anchors)
    own = config.kfac.source == "own"  # else S and G are taken anew from what is sampled
    merges_in = memory.wide if config.lora.merge_precision == "float32" else memory.scalar
    return {
        "factors": memory.vector + 2 * header,
        "dense matrices": (merges_in * memory.dense + header) * (_copied(memory, task) == task),
        "anchors and rule": len({"si", "online_ewc"} & anchors) * (memory.vector + 3 * _HEADER)
        + own
        * (1 + bool(config.sampling.general))
        * (memory.curvature + 2 * header * memory.work.kfac)
        + memory.positions
        + (config.composition.allocation == "osrm") * (memory.wide * task * memory.inputs + header),
    }


def at_end(memory: Memory) -> Parts:
    """Everything in the directory after the last task, by kind.

    The state of a merged model is the factors since the last copy of the dense matrices.
    """
    work, config, last = memory.work, memory.work.config, memory.work.tasks
    copied, new = _copied(memory, last), written(memory, last)
    needed = len(history(config.allocation().after_task, last, copied))
    epochs, terms = config.optim.epochs_of(work.items), 1 + len(config.composition.anchors)
    found = {
        "factors": (last if config.keep.factors else needed) * new["factors"],
        "dense matrices": written(memory, copied)["dense matrices"] if copied else 0,
        "anchors and rule": new["anchors and rule"],
        "matrix and log": _CELL * (last + work.asked) + last * (_LOG + _TERM * epochs * terms),
    }
    return {kind: size for kind, size in found.items() if size}


def _copied(memory: Memory, task: int) -> int:
    """The task after which the dense matrices were last copied, 0 for none."""
    config = memory.work.config
    merges = config.allocation().after_task == "merge"
    return task - task % config.keep.snapshot_every if merges else 0
