"""Files in a trajectory's directory with each item's verdicts and the previous model's samples.

``items/row-0007.json`` (setting ``evaluation.items``) has a 1 or a 0 for every item that was asked
after task 7; ``replay/task-0007.jsonl`` (``sampling.keep``) the samples drawn before task 7.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.core.files import make_folder, read_json, write_text_atomically

VERDICTS_FOLDER, SAMPLES_FOLDER = "items", "replay"
_VERDICTS = {"0": False, "1": True}


def write_row(directory: Path, after_task: int, recalled: Mapping[int, Sequence[bool]]) -> None:
    """Write one row's verdicts. recalled: by task (from 1), whether each item was recalled."""
    bits = {str(task): "".join("01"[item] for item in row) for task, row in recalled.items()}
    text = json.dumps({"after_task": after_task, "recalled": bits}, indent=0) + "\n"
    folder = make_folder(directory / VERDICTS_FOLDER)
    write_text_atomically(folder / f"row-{after_task:04d}.json", text)


def read_rows(directory: Path, horizon: int) -> dict[int, dict[int, list[bool]]]:
    """Read all verdicts up to a horizon: after_task -> on_task -> whether items were recalled."""
    rows: dict[int, dict[int, list[bool]]] = {}
    for path in sorted((directory / VERDICTS_FOLDER).glob("row-*.json")):
        value = read_json(path)
        try:
            after_task = int(value["after_task"])
            row = {
                int(task): [_VERDICTS[bit] for bit in bits]
                for task, bits in value["recalled"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError):
            raise HoldfastError(
                f"{path}: is no row of verdicts; restore the file, or delete it and do without"
            ) from None
        if after_task <= horizon:
            rows[after_task] = row
    if not rows:
        raise HoldfastError(
            f"{directory}: has no verdicts by item; learn with evaluation.items=true, which may "
            "also be set for the tasks that are left"
        )
    return rows


def read_samples(directory: Path, task: int) -> list[str]:
    """Read the texts that the previous model wrote before a task was learned, in order."""
    path = directory / SAMPLES_FOLDER / f"task-{task:04d}.jsonl"
    if not path.exists():
        raise HoldfastError(
            f"{directory}: keeps no samples of task {task}; a method that samples keeps them with "
            "sampling.keep=true"
        )
    try:
        return [
            str(json.loads(line)["text"]) for line in regular(path).read_text("utf-8").splitlines()
        ]
    except (OSError, ValueError, KeyError, TypeError):
        raise HoldfastError(f"{path}: is damaged; restore the file") from None


def sampled_tasks(directory: Path, horizon: int) -> list[int]:
    """The tasks, up to a horizon, whose samples were kept."""
    paths = (directory / SAMPLES_FOLDER).glob("task-*.jsonl")
    names = (path.stem.partition("-")[2] for path in paths)
    return sorted(task for task in map(int, filter(str.isdigit, names)) if task <= horizon)
