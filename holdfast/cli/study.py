"""What `holdfast search` and `holdfast suite` share: recipe, workers, progress."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.core.errors import HoldfastError, did_you_mean

if TYPE_CHECKING:
    from holdfast.recipes import Study
    from holdfast.studies.executor import Executor
    from holdfast.studies.slurm_executor import SlurmParameters


class Kind(StrEnum):
    """Which executor advances the cells."""

    LOCAL = "local"
    RAY = "ray"
    SLURM = "slurm"


Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted settings of all cells.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="The study's directory.", show_default=False)
]
Store = Annotated[
    Path | None,
    typer.Option("--store", help="Where trajectories lie; OUT/cells if unsaid. Studies may share."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Cells learned side by side; 1 if unsaid, on a cluster as many as fit.",
    ),
]
WorkersPerGpu = Annotated[
    int, typer.Option("--workers-per-gpu", min=1, help="With GPUs: so many workers on each.")
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Of each worker; 1 if unsaid, beside a GPU its share."),
]
ExecutorName = Annotated[
    Kind,
    typer.Option("--executor", help="Worker processes here, a Ray cluster, or jobs of Slurm."),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        help="The cluster's head; with --executor ray. Unsaid: RAY_ADDRESS, or a Ray of its own.",
    ),
]
Slurm = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm",
        metavar="KEY=VALUE",
        help="What each job asks of Slurm, such as partition=gpu; with --executor slurm; may be "
        "repeated.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan, learn nothing.")]


def recipe_values(kind: Study, name: str) -> dict[str, Any]:
    """The values of a study's recipe, or of a YAML file; HoldfastError when it is neither."""
    from holdfast.core.config import read_yaml
    from holdfast.recipes import study, study_names

    names = study_names(kind)
    if name in names:
        return study(kind, name)
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return read_yaml(path)
    raise HoldfastError(
        f'"{name}" is neither a recipe of a {kind} nor a YAML file; {did_you_mean(name, names)}'
    )


def own_settings(overrides: list[str] | None) -> list[str]:
    """The user's settings, ``stream=X`` read as ``stream.name=X``.

    Raises HoldfastError for a method or a seed, which the study itself varies.
    """
    from holdfast.core.former import given_overrides

    settings = []
    for override in given_overrides(overrides or []):
        key, separator, value = override.partition("=")
        if key in ("method", "seed"):
            raise HoldfastError(f"{override}: the study sets {key} itself; use its own options")
        settings.append(f"stream.name={value}" if key == "stream" and separator else override)
    return settings


def directory(out: Path | None) -> Path:
    """The study's directory; HoldfastError when there is none."""
    if out is None:
        raise HoldfastError("a study needs a directory for its results; add --out DIR")
    return out


def slurm_parameters(kind: Kind, lines: list[str] | None) -> SlurmParameters | None:
    """What each job asks of Slurm; None with another executor.

    lines: ``KEY=VALUE`` each. Raises HoldfastError for one that submitit does not know.
    """
    if kind is not Kind.SLURM:
        if lines:
            raise HoldfastError("--slurm goes with --executor slurm; add it")
        return None
    from holdfast.core.config import apply_overrides, build
    from holdfast.studies.slurm_executor import SlurmParameters

    return build(SlurmParameters, apply_overrides({}, lines or []), source="--slurm")


def executor(
    kind: Kind,
    address: str | None,
    workers: int | None,
    per_gpu: int,
    threads: int | None,
    device: str,
    place: Path,
    slurm: SlurmParameters | None,
) -> Executor:
    """The executor; HoldfastError when its cluster cannot be reached or it is not installed.

    device: that of the cells' backbones; place: the study's directory; slurm: what a job asks.
    """
    if kind is Kind.RAY:
        from holdfast.cli.progress import loading
        from holdfast.studies.ray_executor import RayExecutor

        with loading("looking for Ray"):
            return RayExecutor(
                address, workers=workers, workers_per_gpu=per_gpu, threads=threads or 1
            )
    if address is not None:
        raise HoldfastError("--ray-address goes with --executor ray; add it")
    if kind is Kind.SLURM:
        from holdfast.studies.slurm_executor import SlurmExecutor

        if per_gpu > 1:
            raise HoldfastError(
                "--workers-per-gpu is not for --executor slurm, whose jobs have what --slurm says; "
                "leave it out"
            )
        return SlurmExecutor(place / "slurm", slurm, workers=workers, threads=threads or 1)
    from holdfast.studies.local import LocalExecutor, usable_gpus

    gpus = [] if device == "cpu" else usable_gpus()
    if gpus:
        return LocalExecutor(workers, devices=gpus, workers_per_gpu=per_gpu, threads=threads)
    return LocalExecutor(workers, threads=threads)
