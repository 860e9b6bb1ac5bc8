"""What `holdfast suite` and `holdfast search` share: options, settings, executors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from holdfast.cli.progress import loading
from holdfast.cli.run import values_of_file
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.recipes import Study
    from holdfast.studies.executor import Executor
    from holdfast.studies.slurm_executor import SlurmParameters


Kind = Literal["local", "ray", "slurm"]  # which executor advances the cells
Out = Annotated[Path | None, Option(help="The study's directory.")]
Store = Annotated[
    Path | None, Option(help="Where trajectories lie; OUT/cells if unsaid. Studies may share.")
]
Workers = Annotated[
    int | None,
    Option(min=1, help="Cells learned side by side; 1 if unsaid, on a cluster as many as fit."),
]
WorkersPerGpu = Annotated[int, Option(min=1, help="With GPUs: so many workers on each.")]
Threads = Annotated[
    int | None, Option(min=1, help="Of each worker; 1 if unsaid, beside a GPU its share.")
]
ExecutorName = Annotated[
    Kind, Option("--executor", help="Worker processes here, a Ray cluster, or jobs of Slurm.")
]
RayAddress = Annotated[
    str | None,
    Option(
        metavar="HOST:PORT",
        help="The cluster's head; with --executor ray. Unsaid: RAY_ADDRESS, or a Ray of its own.",
    ),
]
Slurm = Annotated[
    list[str] | None,
    Option(
        metavar="KEY=VALUE",
        help="What each job asks of Slurm, such as partition=gpu; with --executor slurm; may be "
        "repeated.",
    ),
]
DryRun = Annotated[bool, Option("--dry-run", help="Print the plan, learn nothing.")]


def recipe_values(kind: Study, name: str) -> dict[str, Any]:
    """The values of a study's recipe, or of a YAML file; HoldfastError if it is neither."""
    from holdfast.recipes import recipe_names, study

    names = recipe_names(kind)
    return (
        study(kind, name) if name in names else values_of_file(name, f"a recipe of a {kind}", names)
    )


def cell_settings(overrides: list[str] | None) -> list[str]:
    """The user's settings, ``stream=X`` read as ``stream.name=X``.

    Raises HoldfastError for a method or a seed, which the study itself varies.
    """
    from holdfast.core.config import given_overrides

    settings = []
    for override in given_overrides(overrides or []):
        key, separator, value = override.partition("=")
        if key in ("method", "seed"):
            raise HoldfastError(f"{override}: the study sets {key} itself; use its own options")
        settings.append(f"stream.name={value}" if key == "stream" and separator else override)
    return settings


def directory(out: Path | None, *, dry_run: bool) -> Path:
    """The study's directory; HoldfastError if it is missing, except in a dry run."""
    if out is None and not dry_run:
        raise HoldfastError("a study needs a directory for its results; add --out DIR")
    return out or Path("study")


def slurm_parameters(kind: Kind, lines: list[str] | None) -> SlurmParameters | None:
    """What each job asks of Slurm; None with another executor.

    lines: ``KEY=VALUE`` each. Raises HoldfastError for an unknown key, and for lines without Slurm.
    """
    if kind != "slurm":
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
    """The executor; HoldfastError if it is not installed or its cluster cannot be reached.

    device: of the cells' backbones; place: the study's directory; slurm: what each job asks for.
    """
    if kind == "ray":
        from holdfast.studies.ray_executor import RayExecutor

        with loading("looking for Ray"):
            return RayExecutor(
                address, workers=workers, workers_per_gpu=per_gpu, threads=threads or 1
            )
    if address is not None:
        raise HoldfastError("--ray-address goes with --executor ray; add it")
    if kind == "slurm":
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
