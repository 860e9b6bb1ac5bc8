"""What a run would take, printed: `holdfast doctor --model NAME --method TAG`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.learning.config import RunConfig

_UNITS = {"": 2**30, "g": 2**30, "gib": 2**30, "gb": 10**9, "mib": 2**20, "mb": 10**6}
_CUDA = 512 * 2**20  # bytes that CUDA itself takes, assumed
_SLACK = 0.1  # what an allocator holds beyond the tensors, as a share of them, assumed


def print_prediction(
    words: Sequence[str],
    chosen: Mapping[str, str | None],
    device: str | None,
    memory: str | None,
    *,
    as_json: bool,
) -> None:
    """Print memory by phase, time and disk of a run; HoldfastError for what a run would refuse.

    words: a recipe's name, if any, and overrides; chosen: further settings; memory: of the device.
    """
    from holdfast.cli.progress import loading
    from holdfast.cli.run import configuration, dataset_of

    available = None if memory is None else bytes_of(memory)
    recipe, overrides = "paper", list(words)
    if overrides and "=" not in overrides[0]:
        recipe = overrides.pop(0)
    named = [f"{key}={value}" for key, value in chosen.items() if value is not None]
    values = configuration(recipe, dataset_of(overrides))
    with loading():
        from holdfast.learning.config import RunConfig

        config = RunConfig.of(values, named + overrides)
        found = _predicted(config, device or config.backbone.device, available)
    print(json.dumps(found, indent=2) if as_json else _text(found))


def bytes_of(text: str) -> int:
    """The bytes that ``24GiB``, ``24GB`` or ``24`` (GiB) name; HoldfastError for other text."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in _UNITS:
        raise HoldfastError(f"--memory {text}: is no size; write for example 24GiB or 80GB")
    return int(float(found[1]) * _UNITS[found[2]])


def _predicted(config: RunConfig, device: str, available: int | None) -> dict[str, Any]:
    """All numbers, in bytes and seconds; None where something is not known."""
    import torch

    from holdfast.backbone.load import load_tokenizer, resolved_precision
    from holdfast.cli.fetch import fetch_backbone
    from holdfast.learning.progress import peak_memory
    from holdfast.learning.stream import check_without_weights, stream_of
    from holdfast.prediction.disk import at_end, written
    from holdfast.prediction.memory import Memory
    from holdfast.prediction.seconds import Seconds
    from holdfast.prediction.workload import Workload

    gpu, named = torch.cuda.is_available(), config.backbone
    kind = ("cuda" if gpu else "cpu") if device == "auto" else device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise HoldfastError(f"--device {device}: is not predicted; use cpu or cuda")
    fetch_backbone(named.name)
    stream = stream_of(config)
    check_without_weights(config, replace(stream, tasks=stream.tasks[:1]))
    if available is None and kind == "cpu":
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    elif available is None and gpu:
        available = torch.cuda.get_device_properties(0).total_memory
    work = Workload.of(config, stream, load_tokenizer(named.name, named.revision))
    precision: str = named.precision
    if precision in ("auto", "fastest") and kind == "cuda":
        precision = "bfloat16"
    precision = resolved_precision(
        named.model_copy(update={"precision": precision, "device": "cpu"})
    )
    memory = Memory(work, precision, available)
    tensors = max(sum(parts.values()) for parts in memory.phases.values())
    libraries = _CUDA if kind == "cuda" else peak_memory(torch.device("cpu"))
    needed = tensors + libraries + round(_SLACK * tensors)
    fits = None if available is None else needed <= available
    measured = fits and (gpu or kind == "cpu")
    time = Seconds.measured(memory, torch.device(kind)) if measured else None
    return {
        "model": named.name,
        "method": config.method,
        "device": kind,
        "precision": memory.precision,
        "parameters": memory.parameters,
        "trainable": memory.trainable,
        "stream": [config.stream.name, work.tasks, work.items],
        "tokens": {"item": work.mean, "longest": work.lengths[-1], "sample": memory.sample},
        "memory": memory.phases,
        "beside": needed - tensors,
        "needed": needed,
        "available": available,
        "fits": fits,
        "time": time and {"task": time.of_task(work.tasks), "stream": time.whole()},
        "disk": {"end": at_end(memory), "last commit": written(memory, work.tasks)},
    }


def _text(found: dict[str, Any]) -> str:
    from holdfast.learning.task_lines import duration

    (name, tasks, items), time, disk = found["stream"], found["time"], found["disk"]
    counts = found["parameters"] / 1e6, found["trainable"] / 1e6
    tokens = "{item:.0f} tokens an item, the longest {longest}; {sample} a sample, if it is whole"
    beside = f"{size(found['beside'])} for libraries and the allocator"
    into = f"into {size(found['available'] or 0)}"
    fits = {None: "say --memory of that device, such as 24GiB", True: f"yes, {into}",
            False: f"NO, not {into}; try backbone.checkpointing=true, a smaller optim.batch_size"
            }  # fmt: skip
    lines = [
        ("model", "{}: {:,.0f} M parameters in {}, {:.1f} M trainable".format(
            found["model"], counts[0], found["precision"], counts[1])),
        ("run", f"{found['method']}, {tasks} tasks of {items} items of {name}"),
        ("lengths", tokens.format(**found["tokens"])),
        ("memory", f"of the {found['device']} by phase, at most:"),
        *((f"  {phase}", _parts(parts)) for phase, parts in found["memory"].items()),
        ("needed", f"{size(found['needed'])}, with {beside}"),
        ("fits", fits[found["fits"]]),
        ("time", "of the last task, longer beside other programs:"),
        *((f"  {phase}", duration(one)) for phase, one in (time or {"task": {}})["task"].items()),
        ("  whole stream", time and f"{duration(time['stream'])}, if no answer is decoded"),
        ("disk", f"{_parts(disk['end'])} at the end"),
        ("  last commit", _parts(disk["last commit"])),
    ]  # fmt: skip
    if time is None:
        here = "it does not fit" if found["fits"] is False else f"no {found['device']} is here"
        lines = [one for one in lines if one[0] != "  whole stream"]
        lines[-3] = ("time", f"not said: {here}, and seconds are measured, not modelled")
    return "\n".join(f"{what:<16}{said}" for what, said in lines)


def _parts(parts: dict[str, int]) -> str:
    """The sum, and the parts from the largest on."""
    ordered = sorted(((one, name) for name, one in parts.items() if one), reverse=True)
    texts = ", ".join(f"{name} {size(count)}" for count, name in ordered)
    return f"{size(sum(parts.values()))}: {texts}"


def size(count: float) -> str:
    """Bytes in a unit that leaves a readable number."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= factor:
            return f"{count / factor:,.{1 if count < 100 * factor else 0}f} {unit}"
    return f"{count / 2**10:,.0f} KiB"
