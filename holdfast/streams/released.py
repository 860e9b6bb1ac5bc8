r"""The layout in which the paper's streams are published: one folder of JSON lists per task.

```
manifest.json                 n_tasks, and how the stream was made
task_0/train_items.json       [{"id", "query", "answer", "answer_aliases" | "train_text", ...}, ...]
task_0/test_items.json        equal to train_items.json: recall is tested on the trained items
task_0/train_texts.json       ["Question: q\nAnswer: a", ...], in training order
```
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import flush_directory, lock_directory, read_json
from holdfast.streams.item import Item, clean, quoted
from holdfast.streams.stream import QuestionRegistry, Stream, Task, items_of

logger = logging.getLogger(__name__)

UNFINISHED = ".unfinished"
_ITEM_FILES = ("train_items.json", "test_items.json")
_NUMBERED = re.compile(r"task_\d+")
_OWN_ID = re.compile(r"task_\d+_item_(\d+)")
_OWN_KEYS = ("id", "task_id", "query", "answer", "answer_aliases", "train_text")
# Manifest keys that the writer derives; all others are the stream's ``about``.
_DERIVED = ("name", "n_tasks", "n_items", "test_equals_train", "exact_case", "fingerprint", "tasks")


def is_released(path: Path) -> bool:
    """Whether a directory holds a stream in this layout."""
    return (path / "manifest.json").is_file()


def read_released(path: str | Path) -> Stream:
    """Read a stream as it was published; repeated questions are kept, with a warning.

    One of the two item files may be missing. A task's name is that of the manifest, or else its
    topic, or else its number, from 1. If the manifest has no ``exact_case``, it is true when
    ``dataset_type`` begins with ``symbol``.

    Raises HoldfastError naming the file and, if one is wrong, the item.
    """
    path = Path(path)
    manifest = _manifest(path)
    count = _task_count(path, manifest)
    tasks = [_read_task(path / f"task_{index}") for index in range(count)]
    names = _names(manifest, tasks)
    kind = str(manifest.get("dataset_type", ""))
    stream = Stream(
        tuple(Task(name, tuple(items)) for name, items in zip(names, tasks, strict=True)),
        name=str(manifest.get("name") or path.resolve().name),
        exact_case=manifest.get("exact_case", kind.startswith("symbol")) is True,
        about={key: value for key, value in manifest.items() if key not in _DERIVED},
        repeats=True,
    )
    if manifest.get("fingerprint", stream.fingerprint) != stream.fingerprint:
        logger.warning("%s: was changed since its manifest was written", path)
    _warn_of_repeats(stream, path)
    return stream


def write_released(stream: Stream, path: str | Path) -> None:
    """Write a stream so that :func:`read_released` returns it; the manifest is written last.

    Raises HoldfastError if the directory holds a stream or anything called ``task_...``, if another
    process is writing there, if an item's details have a key that the layout itself uses, or if the
    directory cannot be written.
    """
    path = Path(os.path.abspath(path))
    if path.exists() and not path.is_dir():
        raise HoldfastError(f"{path}: is there already; choose another place, or remove it")
    locked = (path / ".lock").exists()
    with lock_directory(path, parts=("manifest.json", UNFINISHED), create=not locked):
        part = path / UNFINISHED
        # Tasks beside an unfinished part are from a killed writer.
        if is_released(path) or (any(path.glob("task_*")) and not part.is_dir()):
            raise HoldfastError(
                f"{path}: holds a stream or tasks already; choose another place, or remove them"
            )
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            aliases = any(item.aliases for task in stream.tasks for item in task.items)
            for index, task in enumerate(stream.tasks):
                _write_task(part / f"task_{index}", index, task, aliases)
            _dump(part / "manifest.json", _described(stream), indent=2)
            _move(part, path)
        except OSError as error:
            raise HoldfastError(
                f"{path}: cannot be written ({error.strerror or error}); free some space or choose "
                "another place"
            ) from error
        finally:
            if not any(path.glob("task_*")) or is_released(path):
                shutil.rmtree(part, ignore_errors=True)
        if not locked:
            (path / ".lock").unlink(missing_ok=True)


def _move(part: Path, path: Path) -> None:
    """Move the written files into place; the manifest, last, makes the directory a stream."""
    for old in path.glob("task_*"):
        if _NUMBERED.fullmatch(old.name):  # from a killed writer
            shutil.rmtree(old)
    for child in sorted(part.iterdir(), key=lambda child: child.name == "manifest.json"):
        os.replace(child, path / child.name)
    flush_directory(path)


def _write_task(folder: Path, index: int, task: Task, aliases: bool) -> None:
    """aliases: whether an item of the stream has any; if so, they replace ``train_text`` in all."""
    written, texts = [], []
    for number, item in enumerate(task.items):
        text = _text(item.question, item.answer)
        texts.append(text)
        if taken := sorted(set(_OWN_KEYS) & set(item.details)):
            raise HoldfastError(
                f"task {quoted(task.name)} item {number + 1}: its details hold {quoted(taken[0])}, "
                "which is this layout's own; give it another name"
            )
        fields = {
            "id": item.id or f"task_{index}_item_{number}",
            "task_id": index,
            "query": item.question,
            "answer": item.answer,
        }
        answers = {"answer_aliases": list(item.aliases)} if aliases else {"train_text": text}
        written.append(fields | answers | dict(item.details))
    folder.mkdir()
    # These two files are in the order of creation, which is the number in this layout's ids;
    # train_texts.json is in training order.
    for name in _ITEM_FILES:
        _dump(folder / name, _as_made(written))
    _dump(folder / "train_texts.json", texts)


def _as_made(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    matches = [_OWN_ID.fullmatch(item["id"]) for item in items]
    numbered = {int(match[1]): item for match, item in zip(matches, items, strict=True) if match}
    if sorted(numbered) != list(range(len(items))):
        return items
    return [numbered[number] for number in range(len(items))]


def _described(stream: Stream) -> dict[str, Any]:
    return {
        "name": stream.name,
        "n_tasks": len(stream.tasks),
        "n_items": sum(len(task.items) for task in stream.tasks),
        "test_equals_train": True,
        "exact_case": stream.exact_case,
        "fingerprint": stream.fingerprint,
        **stream.about,
        "tasks": [
            {"task_id": index, "name": task.name, "n_train": len(task.items)}
            for index, task in enumerate(stream.tasks)
        ],
    }


def _dump(path: Path, value: Any, indent: int | None = None) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=indent)
        file.flush()
        os.fsync(file.fileno())


def _manifest(path: Path) -> dict[str, Any]:
    if not is_released(path):
        raise HoldfastError(
            f"{path}: holds no manifest.json; give a directory with manifest.json and task_0, "
            "task_1, ... in it"
        )
    manifest = read_json(path / "manifest.json")
    if not isinstance(manifest, dict):
        raise HoldfastError(f"{path / 'manifest.json'}: must hold an object, not a list or a value")
    return manifest


def _task_count(path: Path, manifest: Mapping[str, Any]) -> int:
    """The number of tasks. Raises HoldfastError unless exactly their folders are there."""
    folders = {folder.name for folder in path.glob("task_*") if _NUMBERED.fullmatch(folder.name)}
    count = manifest.get("n_tasks", len(folders))
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise HoldfastError(f'{path / "manifest.json"}: "n_tasks" is {count!r:.40}; give a number')
    expected = {f"task_{index}" for index in range(count)}
    for name in sorted(expected ^ folders)[:1]:
        problem = "is missing of" if name in expected else "is not among"
        raise HoldfastError(
            f"{path}: {name} {problem} the {count} tasks of manifest.json; get the whole "
            "directory, or correct n_tasks"
        )
    return count


def _names(manifest: Mapping[str, Any], tasks: list[list[Item]]) -> list[str]:
    listed = manifest.get("tasks")
    entries = listed if isinstance(listed, list) else []
    for key in ("name", "topic"):
        names = [str(entry[key]) for entry in entries if isinstance(entry, dict) and key in entry]
        if len(names) == len(tasks) == len(set(names)) and all(name.strip() for name in names):
            return names
    topics = [str(task[0].details.get("topic", "")).strip() for task in tasks]
    if len(set(topics)) == len(tasks) and all(topics):
        return topics
    return [str(index + 1) for index in range(len(tasks))]


def _read_task(folder: Path) -> list[Item]:
    """The items of one task in training order."""
    lists = {name: read_json(folder / name) for name in _ITEM_FILES if (folder / name).exists()}
    if not lists:
        raise HoldfastError(f"{folder}: holds neither {' nor '.join(_ITEM_FILES)}; restore one")
    name, raw = next(iter(lists.items()))
    if any(other != raw for other in lists.values()):
        raise HoldfastError(
            f"{folder}: train_items.json and test_items.json differ, but what is trained is what "
            "is asked; remove the wrong one"
        )
    place = folder / name
    if not isinstance(raw, list) or not raw:
        raise HoldfastError(f"{place}: must hold a list of items")
    items = []
    waiting: dict[str, list[Item]] = {}
    for number, values in enumerate(raw, start=1):
        try:
            item, text = _read_item(values)
        except HoldfastError as error:
            raise HoldfastError(f"{place} item {number}: {error}") from None
        items.append(item)
        waiting.setdefault(text, []).append(item)
    texts = folder / "train_texts.json"
    return _in_training_order(texts, waiting, len(items)) if texts.exists() else items


def _read_item(values: Any) -> tuple[Item, str]:
    """Parse one item; return it and its text in train_texts.json."""
    if not isinstance(values, dict) or not values.keys() >= {"query", "answer"}:
        raise HoldfastError('"query" or "answer" is missing; an item has both')
    item = Item(
        question=values["query"],
        answer=values["answer"],
        aliases=values.get("answer_aliases") or (),
        id=clean("id", str(values["id"])) if values.get("id") is not None else None,
        details={key: value for key, value in values.items() if key not in _OWN_KEYS},
    )
    return item, str(values.get("train_text") or _text(values["query"], values["answer"]))


def _in_training_order(path: Path, waiting: dict[str, list[Item]], count: int) -> list[Item]:
    texts = read_json(path)
    if not isinstance(texts, list) or len(texts) != count:
        raise HoldfastError(
            f"{path}: must hold one text for each of the {count} items beside it, once each"
        )
    ordered = []
    for number, text in enumerate(texts, start=1):
        if not waiting.get(text if isinstance(text, str) else ""):
            raise HoldfastError(
                f"{path} text {number}: {quoted(text)} is no item of this task, or stands too "
                "often; every item has one text"
            )
        ordered.append(waiting[text].pop(0))
    return ordered


def _text(question: str, answer: str) -> str:
    return f"Question: {question}\nAnswer: {answer}"


def _warn_of_repeats(stream: Stream, path: Path) -> None:
    questions = QuestionRegistry()
    repeats = []
    for place, item in items_of(stream.tasks):
        try:
            questions.add(item, place)
        except HoldfastError as error:
            repeats.append(str(error))
    if repeats:
        message = "%s: %d questions stand there more than once; the first: %s"
        logger.warning(message, path, len(repeats), repeats[0].split(";")[0])
