"""Push a memory, as it is committed, to the Hugging Face hub, with a card; pull it from there."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import atomic_directory, check_place, lock_directory, make_folder
from holdfast.core.hub import hub_or_cache
from holdfast.exports.push import reason, upload
from holdfast.memory.memory import Memory
from holdfast.memory.record import LESSONS, RECORD_FILE, read_lesson, read_record, write_record
from holdfast.model.cache import Report, silent
from holdfast.model.fetch import has_short_name
from holdfast.model.hub_files import bar
from holdfast.streams.batches import FACTS_FILE, write_batches

_OF_A_MEMORY = re.compile(
    rf"{re.escape(RECORD_FILE)}|{re.escape(FACTS_FILE)}|{LESSONS}/[\w-]+\.safetensors"
)
_CARD = """\
---
library_name: holdfast
tags:
- holdfast
- continual-learning
---

# A memory of {facts} facts

Taught to {model} by Holdfast {version}, in {lessons} lessons. The list of the facts is in `{list}`.

```console
holdfast pull {repository} memory
holdfast ask memory
```
{table}"""


def push_memory(
    memory: Memory, repository: str, *, public: bool = False, list_facts: bool = False
) -> str:
    """Upload a memory; return the address of the repository.

    repository: USER/NAME, made if it is new, private unless ``public``; an adapter that the memory
    no longer has is removed there, and stays in the repository's history; list_facts: show the
    facts in the card too. Raises HoldfastError if nothing is learned, if the model has no name that
    others know, and with the hub's reason.
    """
    if not memory.horizon:
        raise HoldfastError(f"{memory.directory}: has learned nothing yet; learn its facts")
    if Path(memory.model).is_absolute():
        raise HoldfastError(
            f"{memory.directory}: was taught to {memory.model}, which is here alone; push a memory "
            "of a model that has a name"
        )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with lock_directory(memory.directory):
            memory.refresh()
            record = memory.record
            make_folder(folder / LESSONS)
            for file in sorted(record.files):
                read_lesson(memory.directory, file)  # raises if it is damaged
                shutil.copyfile(memory.directory / LESSONS / file, folder / LESSONS / file)
            write_batches(folder / FACTS_FILE, memory.tasks)
            # The repository must not name forgotten questions and answers.
            write_record(folder, replace(record, forgotten=(), former=()))
        (folder / "README.md").write_text(_card(memory, repository, list_facts), encoding="utf-8")
        return upload(
            folder,
            repository,
            private=not public,
            message="Memory of Holdfast",
            instead=f"{LESSONS}/*",
        )


def pull_memory(
    repository: str, out: Path, revision: str | None = None, report: Report = silent
) -> Memory:
    """Download a memory into ``out``, a new or empty directory; return it.

    revision: a branch, tag or commit; report(done, total, what): bytes. Only a memory's own files
    are downloaded, and all are checked before ``out`` is created.
    Raises HoldfastError for what is no memory, or a damaged one, and with the hub's reason.
    """
    check_place(out)
    with tempfile.TemporaryDirectory() as place:
        download = Path(place)
        with hub_or_cache() as answers:
            if not answers:
                raise HoldfastError(f"{repository}: the hub does not answer; try again later")
            _download(repository, revision, download, report)
        for file in (RECORD_FILE, FACTS_FILE):
            if not (download / file).is_file():
                raise HoldfastError(f"{repository}: holds no memory; it has no {file}")
        with atomic_directory(out) as folder:
            for file in (RECORD_FILE, FACTS_FILE):
                shutil.copyfile(download / file, folder / file)
            make_folder(folder / LESSONS)
            for file in sorted(read_record(folder).files):
                read_lesson(download, file)  # raises if it is missing or damaged
                shutil.copyfile(download / LESSONS / file, folder / LESSONS / file)
            Memory(folder)  # raises if the list is not that of the lessons
    return Memory(out)


def _download(repository: str, revision: str | None, folder: Path, report: Report) -> None:
    """Download a memory's files of one commit."""
    from huggingface_hub import HfApi, snapshot_download

    try:
        info = HfApi(library_name="holdfast").model_info(
            repository, revision=revision, files_metadata=True
        )
        sizes = {
            file.rfilename: file.size or 0
            for file in info.siblings or ()
            if _OF_A_MEMORY.fullmatch(file.rfilename)
        }
        snapshot_download(
            repository,
            revision=info.sha,
            local_dir=folder,
            allow_patterns=list(sizes),
            tqdm_class=bar(sum(sizes.values()), report),
        )
    # The exceptions depend on the HTTP client that the library uses.
    except Exception as error:
        raise HoldfastError(f"{repository}: {reason(error, 'read')}") from error


def _card(memory: Memory, repository: str, list_facts: bool) -> str:
    model = memory.model if has_short_name(memory.model) else f"`{memory.model}`"
    values: dict[str, Any] = {
        "facts": len(memory.facts),
        "lessons": memory.horizon,
        "model": model,
        "version": version("holdfast"),
        "list": FACTS_FILE,
        "repository": repository,
        "table": "",
    }
    if list_facts:
        rows = "".join(
            f"| {_cell(fact.question)} | {_cell(fact.answer)} |\n" for fact in memory.facts
        )
        values["table"] = f"\n## Facts\n\n| question | answer |\n|---|---|\n{rows}"
    return _CARD.format(**values)


def _cell(text: str) -> str:
    """A text in a cell of a Markdown table."""
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())
