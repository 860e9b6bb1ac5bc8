"""Export a trajectory's model for transformers, PEFT or llama.cpp."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from safetensors import SafetensorError

from holdfast.core.errors import HoldfastError, did_you_mean, reason_of
from holdfast.core.files import atomic_directory, check_place
from holdfast.exports.card import card_of_run
from holdfast.exports.check import Checked, check, expected
from holdfast.exports.formats import (
    Format,
    check_format,
    check_known_base,
    check_peft,
    write_adapter,
    write_model,
)
from holdfast.exports.gguf import only_the_file
from holdfast.learning.recorded import Recorded
from holdfast.learning.state import Commit
from holdfast.memory.record import is_memory
from holdfast.results.record import is_trajectory
from holdfast.streams.item import quoted


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
    in the precision of training, ``gguf`` for this model in one file, in half precision, ``peft``
    for an adapter of the unmodified backbone; out: a new or an empty directory, created atomically,
    with a README.md that says how to ask the model; after_task: a kept boundary; before, after: the
    same, by the number or the name of a task; without any of them, the last boundary.
    checked: load what was written without Holdfast, compare logits and answers, and return the
    result; repository: on the hub, where the card says that the export lies; ``out`` by default.

    Raises HoldfastError for what is no trajectory, was not kept, cannot be exported or written, or
    differs from what was learned by more than rounding.
    Source: eq. app-shared, eq. app-merge, eq. app-olora-forward.
    """
    directory, out = Path(directory), Path(out)
    check_format(to)
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
        if repository is not None:
            check_known_base(recorded)
    try:
        with atomic_directory(out) as folder, recorded.unchanged():
            wanted = None
            if checked:
                try:
                    tasks = recorded.taught(commit)
                except HoldfastError:  # without the stream, made-up questions are asked
                    tasks = ()
                wanted = expected(recorded.learner(commit), tasks)
            gc.collect()  # frees the learner that was asked: it has reference cycles
            if to != "peft":
                write_model(recorded, commit, folder)
            else:
                home = os.path.abspath(out)
                if repository is not None:  # as the card fetches it
                    home = "./" + repository.rpartition("/")[2]
                write_adapter(recorded, commit, folder, home)
            chat = (folder / "chat_template.jinja").exists()
            text = card_of_run(recorded, commit, to, str(out), chat=chat, repository=repository)
            (folder / "README.md").write_text(text, encoding="utf-8")
            gc.collect()
            result = check(recorded, wanted, folder, to) if wanted else None
            if to == "gguf":
                only_the_file(folder, checked=checked)
            return result
    except SafetensorError as error:  # how safetensors reports a full disk
        reason = reason_of(error)
        raise HoldfastError(f"{out}: cannot be written ({reason}); free some space") from error


def boundary(
    recorded: Recorded,
    after_task: int | None = None,
    *,
    before: int | str | None = None,
    after: int | str | None = None,
) -> Commit:
    """The commit to export; arguments as of :func:`export`.

    Raises HoldfastError if several are given, or the boundary is unknown, 0 or was not kept.
    """
    if sum(given is not None for given in (after_task, before, after)) > 1:
        raise HoldfastError(
            "--after-task, --before and --after name one boundary; give one of them"
        )
    learned = recorded.last.completed
    if not learned:
        raise HoldfastError(f"{recorded.directory}: has learned nothing yet; learn a task first")
    number = after_task
    if after is not None:
        number = _number(recorded, after, "--after")
    elif before is not None:
        number = _number(recorded, before, "--before") - 1
    if number == 0:
        option = "--after-task 0" if before is None else f"--before {before}"
        raise HoldfastError(
            f"{recorded.directory}: {option} is the unmodified backbone, "
            f"{recorded.config.backbone.name}; give a later boundary, at most {learned}"
        )
    return recorded.boundary(number)


def _number(recorded: Recorded, wanted: int | str, option: str) -> int:
    """The number, from 1, of the learned task whose name or number ``wanted`` is."""
    text, learned = str(wanted), recorded.last.completed
    counted = int(text) if text.isascii() and text.isdigit() else None
    try:
        names = [task.name for task in recorded.taught(recorded.last)]
    except HoldfastError:  # without the stream only numbers can be given
        if counted is None:
            raise
        names = []
    numbers = {names.index(text) + 1} if text in names else set[int]()
    if counted is not None and 1 <= counted <= learned:
        numbers.add(counted)
    if len(numbers) == 1:
        return numbers.pop()
    why = f"is no task from 1 to {learned}, which were learned"
    if numbers:
        why = "is the name of one task and the number of another; give --after-task, which counts"
    elif counted is None:
        why = f"no learned task has this name; {did_you_mean(text, names)}"
    raise HoldfastError(f"{recorded.directory}: {option} {quoted(text)}: {why}")


def _recorded(directory: Path) -> Recorded:
    """Read a trajectory's directory; HoldfastError if it is none."""
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
