"""`holdfast doctor`: what this machine can run, and a run would take; `holdfast check-plugin`."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import shlex
from collections import defaultdict
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Annotated, Any

import typer
from packaging.requirements import Requirement
from typer import Argument, Option

from holdfast.cli.fetch import fetch_backbone
from holdfast.cli.printing import say
from holdfast.cli.progress import loading
from holdfast.cli.run import configuration, dataset_of
from holdfast.cli.verbs import Overrides
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.learning.config import RunConfig
    from holdfast.model.backbone import Backbone

_say = partial(say, width=17)  # of the longest name, and a space
_UNITS = {"": 2**30, "m": 2**20, "mib": 2**20, "mb": 10**6, "g": 2**30, "gib": 2**30}
_UNITS |= {"gb": 10**9, "t": 2**40, "tib": 2**40, "tb": 10**12}
# Settings that reduce the memory of a phase; _print_numbers has those of all other phases.
_SMALLER = {
    "evaluation": "a smaller evaluation.tokens_in_cache or evaluation.tokens_per_batch",
    "sampling": "a smaller sampling.batch",
}
_CUDA = 512 * 2**20  # bytes that CUDA itself takes, assumed
_SLACK = 0.1  # what an allocator holds beyond the tensors, as a share of them, assumed


def doctor(
    words: Annotated[
        list[str] | None,
        Argument(metavar="[RECIPE] [KEY=VALUE]...", help="As for run; the recipe paper."),
    ] = None,
    model: Annotated[str | None, Option(help="Predict what a run on this model takes.")] = None,
    method: Annotated[str | None, Option(metavar="TAG", help="Predict for this method.")] = None,
    device: Annotated[
        str | None, Option(help="cpu or cuda, which need not be here; that of this machine.")
    ] = None,
    memory: Annotated[
        str | None, Option(help="Of the device, such as 24GiB; that of this machine.")
    ] = None,
    as_json: Annotated[
        bool, Option("--json", help="Print the prediction as JSON, in bytes and seconds.")
    ] = False,
) -> None:
    """Print what this machine can run and what is missing; with a model, what a run takes.

    Exit 1 when something required is broken.
    """
    if model is not None or method is not None or words:
        named = {"backbone.name": model, "method": method}
        settings = [f"{key}={value}" for key, value in named.items() if value is not None]
        _print_prediction(words or [], settings, device, memory, as_json=as_json)
        return
    for option, value in (("--device", device), ("--memory", memory), ("--json", as_json or None)):
        if value is not None:  # ignored, it would seem to have had an effect
            raise HoldfastError(
                f"{option} is for a prediction; name what to predict: --model, --method or a recipe"
            )
    _say("holdfast", f"{version('holdfast')}, Python {platform.python_version()}")
    required, extras = _requirements()
    complaints = {requirement.name: _complaint(requirement) for requirement in required}
    for name, complaint in complaints.items():
        _say(f"  {name}", complaint or version(name))
    for extra, members in extras.items():
        _say(f"  [{extra}]", _extra(members))
    if any(complaints.values()):
        raise typer.Exit(1)
    with loading():
        import torch  # noqa: F401 - what follows is quick once this is loaded
    _print_plugins()
    _print_devices()
    embedded = _embedded()
    if embedded is None:
        raise typer.Exit(1)
    _print_fast_paths(embedded)
    _print_models()


def _requirements() -> tuple[list[Requirement], dict[str, list[Requirement]]]:
    """What holdfast requires on this machine, and what each of its extras adds."""
    required: list[Requirement] = []
    extras: dict[str, list[Requirement]] = defaultdict(list)
    for text in requires("holdfast") or ():
        requirement = Requirement(text)
        match = re.search(r"""extra == ["']([^"']+)""", str(requirement.marker))
        extra = match[1] if match else ""
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue  # for other machines
        if not extra:
            required.append(requirement)
        elif requirement.name != "holdfast":  # an extra that only names other extras adds nothing
            extras[extra].append(requirement)
    return required, extras


def _complaint(requirement: Requirement) -> str | None:
    """What is wrong with a requirement, and the command that installs it; None if it is met."""
    mend = _pip_install(requirement)
    try:
        installed = version(requirement.name)
    except PackageNotFoundError:
        return f"MISSING; {mend}"
    if not requirement.specifier.contains(installed, prereleases=True):
        return f"{installed} is too old or too new; {mend}"
    return None


def _pip_install(*requirements: Requirement) -> str:
    needs = [need.name + str(need.specifier) for need in requirements]
    return shlex.join(["pip", "install", *needs])


def _extra(members: list[Requirement]) -> str:
    missing = [member for member in members if _complaint(member)]
    if not missing:
        return ", ".join(f"{member.name} {version(member.name)}" for member in members)
    return f"incomplete, and optional; {_pip_install(*missing)}"


def _print_plugins() -> None:
    from holdfast.core import plugins

    for group in (plugins.ANCHOR_GROUP, plugins.ALLOCATION_GROUP, plugins.STREAMS):
        for entry in plugins.installed(group):
            try:
                plugins.loaded(group, entry)
            except HoldfastError as error:
                _say(entry.name, f"BROKEN: {error}")
            else:
                _say(entry.name, f"{group}, {entry.value}")


def _print_devices() -> None:
    import torch

    _say("processor", f"{os.cpu_count()} cores, {torch.get_num_threads()} torch threads")
    if not torch.cuda.is_available():
        build = "" if torch.version.cuda else f"; torch {torch.__version__} is built without CUDA"
        _say("accelerator", f"none{build}")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        _say(f"cuda:{index}", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")


def _embedded() -> Backbone | None:
    """The embedded backbone, loaded as a run would; None when it is broken."""
    from holdfast.model.load import load_backbone

    try:
        backbone = load_backbone()
    except HoldfastError as error:
        _say("embedded", f"BROKEN: {error}")
        return None
    count = sum(parameter.numel() for parameter in backbone.model.parameters())
    _say("embedded", f"{count / 1e6:.1f} M parameters, answers")
    return backbone


def _print_models() -> None:
    from holdfast.model.sources.fetch import CATALOGUE, find

    for model in CATALOGUE.values():
        try:
            directory = find(model.name)
        except HoldfastError as error:
            _say(model.name, f"BROKEN: {error}")
            continue
        size = f"{model.title}, {model.wheel_size / 1e6:.0f} MB, {model.licence}"
        _say(model.name, str(directory or f"not here; holdfast fetch {model.name} ({size})"))


def _print_fast_paths(backbone: Backbone) -> None:
    import torch

    from holdfast.model.generation.decoding import can_cache
    from holdfast.model.hardware import bfloat16_time

    if backbone.device.type != "cuda":
        cost = f"products take {bfloat16_time():.2g} of float32's time on this processor"
        faster = "backbone.precision=fastest uses what is faster, which changes numbers"
        _say("bfloat16", f"{cost}; {faster}")
    elif torch.cuda.is_bf16_supported(including_emulation=False):
        _say("bfloat16", "used")
    else:
        _say("bfloat16", "slow on this GPU; set backbone.precision=float32")
    attention = backbone.model.config._attn_implementation
    said = {"sdpa": "fused (sdpa)", "eager": "plain products (eager)"}
    _say("attention", said.get(attention, attention))
    cache = "with a cache of keys and values" if can_cache(backbone) else "without a cache, slowly"
    _say("generation", cache)


def _print_prediction(
    words: list[str], named: list[str], device: str | None, memory: str | None, *, as_json: bool
) -> None:
    """Print a run's memory by phase, time and disk. words: a recipe, if any, and overrides."""
    available = None if memory is None else bytes_of(memory)
    recipe, overrides = ("paper", words) if not words or "=" in words[0] else (words[0], words[1:])
    values = configuration(recipe, dataset_of(overrides))
    with loading():
        from holdfast.learning.config import RunConfig

        config = RunConfig.of(values, named + overrides)
        prediction = _predicted(config, device or config.backbone.device, available)
    if as_json:
        print(json.dumps(prediction, indent=2))
    else:
        _print_numbers(prediction)


def bytes_of(text: str) -> int:
    """The bytes that ``24GiB``, ``24GB`` or ``24`` (GiB) name."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    size = float(match[1]) * _UNITS.get(match[2], math.inf) if match else math.inf
    if not math.isfinite(size):
        raise HoldfastError(f"--memory {text:.40}: is no size; write for example 24GiB or 80GB")
    return int(size)


def _predicted(config: RunConfig, device: str, available: int | None) -> dict[str, Any]:
    """All predicted numbers, in bytes and seconds; None for what is not known."""
    import torch

    from holdfast.learning.progress import peak_memory
    from holdfast.learning.stream import check_without_weights, stream_of
    from holdfast.model.hardware import resolved_attention, resolved_precision
    from holdfast.model.load import load_tokenizer
    from holdfast.prediction.seconds import Seconds
    from holdfast.prediction.space import PredictedMemory, at_end, written
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
    chosen: dict[str, Any] = {"device": "cpu"}
    if named.precision in ("auto", "fastest") and kind == "cuda":
        chosen["precision"] = "bfloat16"
    precision = resolved_precision(named.model_copy(update=chosen))
    attention = {"attention": resolved_attention(named, precision, kind)}
    config = config.model_copy(update={"backbone": named.model_copy(update=attention)})
    work = Workload.of(config, stream, load_tokenizer(named.name, named.revision))
    memory = PredictedMemory(work, precision, available)
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


def _print_numbers(numbers: dict[str, Any]) -> None:
    from holdfast.learning.progress import duration

    device, tokens, fits, time = (numbers[key] for key in ("device", "tokens", "fits", "time"))
    name, tasks, items = numbers["stream"]
    parameters = f"{numbers['parameters'] / 1e6:,.0f} M parameters in {numbers['precision']}"
    _say("model", f"{numbers['model']}: {parameters}, {numbers['trainable'] / 1e6:.1f} M trainable")
    _say("run", f"{numbers['method']}, {tasks} tasks of {items} items of {name}")
    lengths = f"{tokens['item']:.0f} tokens an item, the longest {tokens['longest']}"
    _say("lengths", f"{lengths}; {tokens['sample']} a sample, if it is whole")
    _say("memory", f"of the {device} by phase, at most:")
    for phase, parts in numbers["memory"].items():
        _say(f"  {phase}", _parts(parts))
    beside = f"{_size(numbers['beside'])} for libraries and the allocator"
    _say("needed", f"{_size(numbers['needed'])}, with {beside}")
    if fits is None:
        _say("fits", "say --memory of that device, such as 24GiB")
    else:
        answer = f"into {_size(numbers['available'])}"
        sums = {phase: sum(parts.values()) for phase, parts in numbers["memory"].items()}
        largest = max(sums, key=lambda phase: sums[phase])
        smaller = _SMALLER.get(largest, "backbone.checkpointing=true, a smaller optim.batch_size")
        _say("fits", f"yes, {answer}" if fits else f"NO, not {answer}; try {smaller}")
    if time is None:
        here = "it does not fit" if fits is False else f"no {device} is here"
        _say("time", f"not said: {here}, and seconds are measured, not modelled")
    else:
        _say("time", "of the last task, longer beside other programs:")
        for phase, seconds in time["task"].items():
            _say(f"  {phase}", duration(seconds))
        _say("  whole stream", f"{duration(time['stream'])}, if no answer is decoded")
    _say("disk", f"{_parts(numbers['disk']['end'])} at the end")
    _say("  last commit", _parts(numbers["disk"]["last commit"]))


def _parts(parts: dict[str, int]) -> str:
    """The sum of the parts, then each part, the largest first."""
    ordered = sorted(((size, name) for name, size in parts.items() if size), reverse=True)
    texts = ", ".join(f"{name} {_size(size)}" for size, name in ordered)
    return f"{_size(sum(parts.values()))}: {texts}"


def _size(count: float) -> str:
    """Bytes in a unit that leaves a readable number."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= factor:
            return f"{count / factor:,.{1 if count < 100 * factor else 0}f} {unit}"
    return f"{count / 2**10:,.0f} KiB"


def check_plugin(
    name: Annotated[str, Argument(metavar="NAME", help="As a method's tag has it.")],
    overrides: Overrides = None,
) -> None:
    """Learn three short tasks with a mechanism, and check the contract that all have to keep.

    Exit status 1 if it breaks the contract.
    """  # fmt: skip
    with loading():
        from holdfast.learning.mechanism_check import check_mechanism

    broken = False
    for finding in check_mechanism(name, overrides or []):
        if finding.kept:
            print(f"kept    {finding.promise}", flush=True)
        else:
            broken = True
            print(f"BROKEN  {finding.promise}; {finding.why}", flush=True)
    if broken:
        raise typer.Exit(1)
