"""A trajectory's model in the formats that other programs load: transformers' and PEFT's."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from safetensors import SafetensorError

from holdfast.core.errors import HoldfastError
from holdfast.core.files import alone, flush_directory
from holdfast.exports.adapter import check_peft, write_adapter
from holdfast.exports.card import card
from holdfast.exports.complete import write_model
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit
from holdfast.results.description import is_trajectory
from holdfast.streams.item import quoted

Format = Literal["peft", "hf"]


def export(directory: Path, to: Format, out: Path, after_task: int | None = None) -> None:
    """Write the model of a trajectory or a memory for programs without Holdfast.

    directory: the trajectory's; to: ``hf`` for a complete model with its low-rank updates folded
    in, in the precision in which it learned, ``peft`` for an adapter of the unmodified backbone;
    out: a new or an empty directory; after_task: a kept boundary, None for the last one.
    ``out`` appears whole or not at all, and with a README.md that says how to ask the model.

    Raises HoldfastError: no trajectory, a boundary that is not there or taught nothing, ``out`` is
    taken or cannot be written, other weights than the trajectory began with; for ``peft`` a missing
    library, or factors that were not kept.
    Source: eq. app-shared, eq. app-merge, eq. app-olora-forward.
    """
    if to not in get_args(Format):
        raise HoldfastError(f'--to {to}: is no format; give "peft" or "hf"')
    directory, out = Path(directory), Path(out)
    recorded = _recorded(directory)
    _check_place(out)
    commit = _boundary(recorded, after_task)
    if to == "peft":
        check_peft(recorded, commit)
    write = write_model if to == "hf" else write_adapter
    with _appearing(out) as folder, recorded.standing():
        asking = write(recorded, commit, folder)
        text = card(recorded, commit, out, asking)
        (folder / "README.md").write_text(text, encoding="utf-8")


def _recorded(directory: Path) -> Recorded:
    """Read a trajectory's directory; HoldfastError when it is none."""
    if not is_trajectory(directory):
        raise HoldfastError(
            f"{directory}: is no trajectory (no config.json of one); give the --out of a run, or a "
            "memory"
        )
    return Recorded.read(directory)


def _boundary(recorded: Recorded, after_task: int | None) -> Commit:
    commit = recorded.boundary(after_task)
    if commit.completed:
        return commit
    learned = recorded.last.completed
    if not learned:
        raise HoldfastError(f"{recorded.directory}: has learned nothing yet; learn a task first")
    raise HoldfastError(
        f"{recorded.directory}: --after-task 0 is the unmodified backbone, "
        f"{recorded.config.backbone.name}; give 1 to {learned}"
    )


def _check_place(out: Path) -> None:
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


@contextlib.contextmanager
def _appearing(out: Path) -> Iterator[Path]:
    """A folder that becomes ``out`` when the block is done.

    A killed export leaves a hidden folder beside ``out``, which the next export there removes.
    """
    out = Path(os.path.realpath(out))  # write to a symbolic link's target
    beside = out.with_name(f".{out.name}.part")
    folder = beside / "export"
    with alone(beside):
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            yield folder
            _settle(folder)
            os.replace(folder, out)
            flush_directory(out.parent)
        except (OSError, SafetensorError) as error:
            # safetensors reports a full disk as an error of its own.
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise HoldfastError(
                f"{out}: cannot be written ({reason}); free some space or choose another place"
            ) from error
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _settle(folder: Path) -> None:
    """Flush every file to disk and give it the folder's read permissions."""
    for path in (path for path in folder.rglob("*") if path.is_file()):
        with contextlib.suppress(OSError):
            path.chmod(folder.stat().st_mode & 0o666)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    flush_directory(folder)
