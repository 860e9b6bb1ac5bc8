"""`holdfast doctor`: what this machine can run, and what is missing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

import typer

_REQUIRED = ("torch", "transformers", "tokenizers", "safetensors", "pydantic", "numpy")
_EXTRAS = {"peft": "peft"}


def doctor() -> None:
    """Print versions, devices and what is missing; exit 1 when something required is broken."""
    healthy = True
    print(f"holdfast {version('holdfast')}, Python {platform.python_version()}")
    for package in _REQUIRED:
        found = _version(package)
        healthy &= found is not None
        print(f"  {package:<13} {found or 'MISSING: pip install holdfast again'}")
    for package, extra in _EXTRAS.items():
        missing = f'not installed; pip install "holdfast[{extra}]" adds it'
        print(f"  {package:<13} {_version(package) or missing}")
    if not healthy:
        raise typer.Exit(1)
    _print_devices()
    if not _embedded_is_whole():
        raise typer.Exit(1)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _print_devices() -> None:
    import torch

    print(f"processor     {os.cpu_count()} cores, {torch.get_num_threads()} torch threads")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            gib = properties.total_memory / 2**30
            bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16: use float32"
            print(f"cuda:{index}        {properties.name}, {gib:.0f} GiB, {bf16}")
    else:
        print("accelerator   none: backbones run in float32 on the processor")


def _embedded_is_whole() -> bool:
    from holdfast.backbone.load import load_backbone
    from holdfast.core.errors import HoldfastError

    folder = files("holdfast.backbone") / "embedded"
    try:
        backbone = load_backbone()
    except HoldfastError as error:
        print(f"embedded      BROKEN: {error}")
        return False
    count = sum(parameter.numel() for parameter in backbone.model.parameters())
    size = len((folder / "model.safetensors").read_bytes()) / 2**20
    print(f"embedded      {count / 1e6:.1f} M parameters, {size:.1f} MiB, answers")
    return True
