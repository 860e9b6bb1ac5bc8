"""Export a trajectory's model in the formats of transformers and PEFT."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Literal, get_args

from safetensors import SafetensorError

from holdfast.core.errors import HoldfastError
from holdfast.core.files import atomic_directory
from holdfast.exports.adapter import check_peft, write_adapter
from holdfast.exports.boundary import boundary
from holdfast.exports.card import card
from holdfast.exports.check import Checked, check
from holdfast.exports.complete import write_model
from holdfast.exports.expected import Expected, expected
from holdfast.exports.gguf import command
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit
from holdfast.learning.taught import taught
from holdfast.memory.record import is_memory
from holdfast.results.record import is_trajectory
from holdfast.streams.item import quoted

Format = Literal["peft", "hf"]


def export(
    directory: Path,
    to: Format,
    out: Path,
    after_task: int | None = None,
    *,
    before: int | str | None = None,
    after: int | str | None = None,
    checked: bool = True,
    repository: str | None = None,
) -> Checked | None:
    """Write the model of a trajectory for programs without Holdfast.

    directory: the trajectory's; to: ``hf`` for a complete model with its low-rank updates merged,
    in the precision of training, ``peft`` for an adapter of the unmodified backbone;
    out: a new or an empty directory; after_task: a kept boundary; before, after: the same, by the
    number or the name of a task; without any of them, the last boundary.
    checked: load what was written without Holdfast, and compare its logits and its answers to a
    sample of facts with the trajectory's own; returns what was found. repository: of the hub, where
    the card says that the export lies; ``out`` by default.
    ``out`` is created atomically, with a README.md that says how to ask the model.

    Raises HoldfastError when there is no trajectory, the boundary was not kept or is 0, ``out`` is
    not empty or cannot be written, the backbone's weights have changed, or what was written differs
    from what was learned by more than rounding; for ``peft`` also when the library or a task's
    factors are missing, or the allocation rule is unknown.
    Source: eq. app-shared, eq. app-merge, eq. app-olora-forward.
    """
    directory, out = Path(directory), Path(out)
    _check_format(to, out)
    recorded = _recorded(directory)
    check_place(out)
    commit = boundary(recorded, after_task, before=before, after=after)
    quantization = recorded.config.backbone.quantization
    if quantization != "none":
        raise HoldfastError(
            f"{recorded.directory}: was learned on a base in {quantization}, into which nothing "
            "can be merged, and an adapter is loaded on the dense one, which answers otherwise; "
            "ask it here"
        )
    if to == "peft":
        check_peft(recorded, commit)
    try:
        with atomic_directory(out) as folder, recorded.standing():
            wanted = _wanted(recorded, commit) if checked else None
            gc.collect()  # frees the learner that was asked: it has reference cycles
            if to == "hf":
                asking = write_model(recorded, commit, folder)
            else:
                home = os.path.abspath(out) if repository is None else ""
                asking = write_adapter(recorded, commit, folder, home)
            text = card(recorded, commit, str(out), asking, repository)
            (folder / "README.md").write_text(text, encoding="utf-8")
            gc.collect()
            return check(recorded, wanted, folder, asking) if wanted else None
    except SafetensorError as error:  # how safetensors reports a full disk
        reason = " ".join(str(error).split())
        raise HoldfastError(f"{out}: cannot be written ({reason}); free some space") from error


def _wanted(recorded: Recorded, commit: Commit) -> Expected:
    """What the export must reproduce."""
    try:
        tasks = taught(recorded, commit)
    except HoldfastError:  # the stream is no longer there; the model is
        tasks = ()
    return expected(recorded.learner(commit), tasks)


def _check_format(to: str, out: Path) -> None:
    if to == "gguf":
        raise HoldfastError(
            f"--to gguf: is written by llama.cpp; give --to hf, then run its {command(str(out))}"
        )
    if to not in get_args(Format):
        raise HoldfastError(f'--to {to}: is no format; give "peft" or "hf"')


def _recorded(directory: Path) -> Recorded:
    """Read a trajectory's directory; HoldfastError when it is none."""
    if is_memory(directory):
        raise HoldfastError(
            f"{directory}: is a memory, which holdfast.exports.memory.export_memory writes, as "
            "holdfast export does"
        )
    if not is_trajectory(directory):
        raise HoldfastError(
            f"{directory}: is no trajectory (no config.json of one); give the --out of a run"
        )
    return Recorded.read(directory)


def check_place(out: Path) -> None:
    """Raise HoldfastError unless a directory can be made there, or is there and empty."""
    try:
        os.path.realpath(out).encode()
    except UnicodeEncodeError:
        name = quoted(out)
        raise HoldfastError(f"{name}: is no valid Unicode; choose another place") from None
    try:
        taken = next(out.iterdir(), None)
    except FileNotFoundError:
        return
    except OSError as error:
        raise HoldfastError(
            f"{out}: is no directory that can be read ({error.strerror}); choose another place"
        ) from None
    if taken is not None:
        raise HoldfastError(f"{out}: holds {taken.name}; choose an empty or a new directory")
