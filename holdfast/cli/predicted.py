"""What a run would take, printed: `holdfast doctor --model NAME --method TAG`."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.learning.config import RunConfig
    from holdfast.prediction.memory import Parts
    from holdfast.prediction.predict import DeviceType, Machine, Prediction
    from holdfast.prediction.rates import Rates

_WIDTH = 16
_UNITS = {"": 2**30, "g": 2**30, "gib": 2**30, "gb": 10**9, "mib": 2**20, "mb": 10**6}
_PARTS_SHOWN = 4


@dataclass(frozen=True)
class Words:
    """The words of the command. words: a recipe's name, if any, and overrides."""

    words: tuple[str, ...]
    model: str | None
    method: str | None
    device: str | None
    memory: str | None
    gflops: float | None
    bandwidth: float | None


def print_prediction(asked: Words, *, as_json: bool) -> None:
    """Print memory by phase, time and disk of a run; HoldfastError for what a run would refuse."""
    from holdfast.cli.progress import loading

    available = None if asked.memory is None else bytes_of(asked.memory)
    values, overrides = _values(asked)
    with loading():
        from holdfast.learning.config import RunConfig

        config = RunConfig.of(values, overrides)
        prediction = _predicted(config, asked, available)
    if as_json:
        print(json.dumps(prediction.as_json(), indent=2))
        return
    _print_about(prediction)
    _print_memory(prediction)
    _print_time(prediction)
    _print_disk(prediction)


def bytes_of(text: str) -> int:
    """The bytes that ``24GiB``, ``24GB`` or ``24`` (GiB) name; HoldfastError for other text."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in _UNITS:
        raise HoldfastError(f"--memory {text}: is no size; write for example 24GiB or 80GB")
    return int(float(found[1]) * _UNITS[found[2]])


def _values(asked: Words) -> tuple[dict[str, Any], list[str]]:
    from holdfast.cli.run import configuration, dataset_of

    recipe, overrides = "paper", list(asked.words)
    if overrides and "=" not in overrides[0]:
        recipe = overrides.pop(0)
    chosen = {"backbone.name": asked.model, "method": asked.method}
    named = [f"{key}={value}" for key, value in chosen.items() if value is not None]
    return configuration(recipe, dataset_of(overrides)), named + overrides


def _predicted(config: RunConfig, asked: Words, available: int | None) -> Prediction:
    from holdfast.backbone.load import load_shape, load_tokenizer
    from holdfast.cli.fetch import fetch_backbone
    from holdfast.learning.stream import stream_of
    from holdfast.prediction.lengths import Lengths
    from holdfast.prediction.predict import Prediction

    named = config.backbone
    fetch_backbone(named.name)
    model = load_shape(named.name, named.revision)
    try:
        tokenizer = load_tokenizer(named.name, named.revision)
    except HoldfastError:
        tokenizer = None
    lengths = Lengths.of(config, stream_of(config), tokenizer)
    device = _device(config, asked.device)
    machine = _machine(device, available)
    prediction = Prediction.of(config, model, tokenizer, lengths, machine)
    rates = _rates(prediction, asked)
    from dataclasses import replace

    return replace(prediction, machine=replace(machine, rates=rates))


def _device(config: RunConfig, asked: str | None) -> DeviceType:
    """The type of the device; HoldfastError for another word than cpu and cuda."""
    import torch

    name = asked or config.backbone.device
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.partition(":")[0]
    if kind == "cuda":
        return "cuda"
    if kind != "cpu":
        raise HoldfastError(f"--device {name}: is not predicted; use cpu or cuda")
    return "cpu"


def _machine(device: DeviceType, available: int | None) -> Machine:
    """The device of this machine where it is of that type; else what is said of it."""
    import torch

    from holdfast.prediction.predict import Machine

    if available is None and device == "cpu":
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if available is None and torch.cuda.is_available():
        available = torch.cuda.get_device_properties(0).total_memory
    return Machine(device, available, libraries=_resident())


def _resident() -> int:
    """Bytes of this process, which has loaded the libraries and no weights."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _rates(prediction: Prediction, asked: Words) -> Rates | None:
    """Given, or measured where the device is here; None where it is not."""
    import torch

    from holdfast.prediction.predict import precision_on
    from holdfast.prediction.rates import Rates, rates_on

    if (asked.gflops is None) != (asked.bandwidth is None):
        raise HoldfastError("--gflops and --bandwidth go together; give both or none")
    if asked.gflops is not None and asked.bandwidth is not None:
        if min(asked.gflops, asked.bandwidth) <= 0:
            raise HoldfastError("--gflops and --bandwidth must be above 0")
        return Rates(asked.gflops * 1e9, asked.bandwidth * 1e9)
    device = prediction.machine.device
    if device == "cuda" and not torch.cuda.is_available():
        return None
    dtype = getattr(torch, precision_on(prediction.config, device))
    # A buffer beyond any cache is enough; the weights of a large model would take long.
    working_set = min(prediction.shape.weight_bytes, 2**28)
    return rates_on(torch.device(device), dtype, working_set)


def _print_about(prediction: Prediction) -> None:
    from holdfast.prediction.predict import precision_on

    config, shape, lengths = prediction.config, prediction.shape, prediction.lengths
    precision = precision_on(config, prediction.machine.device)
    _say(
        "model",
        f"{config.backbone.name}: {shape.parameters / 1e6:,.0f} M parameters in {precision}, "
        f"{shape.trainable / 1e6:.1f} M trainable",
    )
    _say(
        "run",
        f"{config.method}, {lengths.tasks} tasks of {lengths.items} items of {config.stream.name}",
    )
    said = f"{lengths.item:.0f} tokens an item, the longest {lengths.longest}"
    if prediction.memory.get("sampling"):
        said += f"; every sample is taken to have all its {lengths.sample - 1}"
    _say("lengths", "; ".join([said, *(f"assumed: {one}" for one in lengths.assumed)]))
    if prediction.by_modules:
        _say("activations", f"more than is said: the model's own modules, {prediction.by_modules}")
    if prediction.unknown:
        _say("not counted", ", ".join(prediction.unknown))


def _print_memory(prediction: Prediction) -> None:
    machine = prediction.machine
    where = "the processor's memory" if machine.device == "cpu" else "the GPU's memory"
    _say("memory", f"{where} by phase, at most:")
    for phase, peak in prediction.memory.items():
        host = f"; host: {_largest(peak.host)}" if peak.host else ""
        _say(f"  {phase}", f"{size(peak.total):>9}  {_largest(peak.device)}{host}")
    tensors = prediction.memory[prediction.highest].total
    libraries = "the libraries" if machine.device == "cpu" else "CUDA (assumed)"
    beside = f"{size(machine.beside(tensors))} for {libraries} and the allocator"
    _say("highest", f"{size(prediction.needed)} in {prediction.highest}, with {beside}")
    if machine.memory is None:
        _say("fits", "say --memory of that device, such as 24GiB")
    elif prediction.fits:
        _say("fits", f"yes, into {size(machine.memory)}")
    else:
        _say("fits", f"NO, not into {size(machine.memory)}")
        _print_remedies(prediction)


def _print_remedies(prediction: Prediction) -> None:
    from holdfast.prediction.fitting import remedies

    found = remedies(prediction)
    for one in found:
        _say("  would fit", f"{' '.join(one.overrides)}  ({size(one.needed)}; {one.says})")
    if not found:
        _say(
            "  would fit", "no setting that is known here; take a smaller model or a larger device"
        )


def _largest(parts: Parts) -> str:
    """The largest parts, and the sum of the others."""
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    shown, rest = ordered[:_PARTS_SHOWN], sum(size for _, size in ordered[_PARTS_SHOWN:])
    texts = [f"{name} {size(count)}" for name, count in shown]
    return ", ".join([*texts, *([f"others {size(rest)}"] if rest else [])])


def _print_time(prediction: Prediction) -> None:
    times = prediction.times
    if times is None:
        _say("time", "not predicted: the device is not here; say its --gflops and --bandwidth")
        return
    from holdfast.learning.task_lines import duration

    last = prediction.lengths.tasks
    by_phase, counted = times.of_task(last), times.counted(last)
    _say("time", "by phase of the last task; rougher than memory, within a factor of two:")
    for phase, seconds in by_phase.items():
        operations = counted[phase].flops
        _say(f"  {phase}", f"{duration(seconds):>9}  {operations / 1e12:,.3g} T operations")
    _say("  whole stream", f"{duration(times.whole()):>9}  with all its rows, no answer decoded")
    rates = times.rates
    _say("  at", f"{rates.flops / 1e9:,.0f} Gflop/s and {rates.bytes / 1e9:,.0f} GB/s")


def _print_disk(prediction: Prediction) -> None:
    disk, last = prediction.disk, prediction.lengths.tasks
    end = disk.end()
    _say("disk", f"{size(sum(end.values()))} at the end: {_largest(end)}")
    _say(
        "  a commit",
        f"writes {size(disk.written(1))} after task 1, "
        f"{size(disk.written(last))} after task {last}",
    )
    _say("  at most", f"{size(disk.most())} at once, before old files are removed")


def size(count: float) -> str:
    """Bytes in a unit that leaves a readable number."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= factor:
            return f"{count / factor:,.{1 if count < 100 * factor else 0}f} {unit}"
    return f"{count / 2**10:,.0f} KiB"


def _say(what: str, text: str) -> None:
    print(f"{what:<{_WIDTH}}{text}")
