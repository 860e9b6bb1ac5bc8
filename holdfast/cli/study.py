"""What `holdfast search` and `holdfast suite` share: the recipe, the workers, how far it is."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.recipes import Study
    from holdfast.studies.cell import Cell, Outcome
    from holdfast.studies.executor import Executor, Watch

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
    int | None, typer.Option("--workers", min=1, help="Cells learned side by side; 1 if unsaid.")
]
WorkersPerGpu = Annotated[
    int, typer.Option("--workers-per-gpu", min=1, help="With GPUs: so many workers on each.")
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Of each worker; 1 if unsaid, beside a GPU its share."),
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
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise HoldfastError(
        f'"{name}" is neither a recipe of a {kind} nor a YAML file; did you mean {nearest}? '
        f"known: {', '.join(names)}"
    )


def own_settings(overrides: list[str] | None) -> list[str]:
    """The user's settings, ``stream=X`` read as ``stream.name=X``.

    Raises HoldfastError for a method or a seed, which are the study's own affair.
    """
    settings = []
    for override in overrides or []:
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


def local_executor(workers: int | None, per_gpu: int, threads: int | None) -> Executor:
    """Worker processes of this machine: on its GPUs, or side by side on the processor."""
    import torch

    from holdfast.studies.local import LocalExecutor

    gpus = [str(index) for index in range(torch.cuda.device_count())]
    if gpus:
        places = workers or len(gpus) * per_gpu
        used = gpus[: -(-places // per_gpu)]
        return LocalExecutor(devices=used, workers_per_gpu=per_gpu, threads=threads)
    return LocalExecutor(workers or 1, threads=threads)


@contextmanager
def watching(label: str, tasks: int) -> Iterator[Watch]:
    """Show tasks learned, of how many in the whole study, and how the cells fare."""
    from holdfast.cli.progress import counting
    from holdfast.studies.executor import Watch

    with counting(label) as report:

        class Shown(Watch):
            def __init__(self) -> None:
                self.learned = self.cells = self.done = self.failed = 0
                self.running: set[str] = set()

            def begins(self, cells: int, tasks: int, missing: int) -> None:
                self.learned += tasks - missing
                self.cells, self.done = cells, 0
                self._report()

            def started(self, cell: Cell) -> None:
                self.running.add(cell.key)
                self._report()

            def task_done(self, cell: Cell, task: int) -> None:
                self.learned += 1
                self._report()

            def finished(self, outcome: Outcome) -> None:
                self.running.discard(outcome.cell.key)
                self.done += 1
                self.failed += outcome.error is not None
                self._report()

            def event(self, cell: Cell, text: str) -> None:
                typer.echo(f"{label}: {cell.candidate}, seed {cell.config.seed}: {text}", err=True)

            def _report(self) -> None:
                note = f"{self.done} of {self.cells} cells done, {len(self.running)} running"
                failed = f", {self.failed} failed" if self.failed else ""
                report(min(self.learned, tasks), tasks, note + failed)

        yield Shown()
