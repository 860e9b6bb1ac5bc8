"""Upload exports and memories to the Hugging Face hub; download memories."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import atomic_directory, check_place, lock_directory, make_folder
from holdfast.core.hub import hub_or_cache
from holdfast.core.reporting import NoteReport, silent
from holdfast.exports.card import render_card
from holdfast.memory.batch import read_lesson
from holdfast.memory.memory import Memory
from holdfast.memory.record import LESSONS, RECORD_FILE, read_record, write_record
from holdfast.model.sources.fetch import has_short_name
from holdfast.model.sources.hub_files import bar
from holdfast.streams.batches import FACTS_FILE, write_batches

_OF_A_MEMORY = re.compile(
    rf"{re.escape(RECORD_FILE)}|{re.escape(FACTS_FILE)}|{LESSONS}/[\w-]+\.safetensors"
)


def check_repository(repository: str) -> None:
    """Raise HoldfastError unless this is a valid name of a repository."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise HoldfastError(
            f"{repository}: is no name of a repository ({_line(error)}); give USER/NAME"
        ) from None


def push(folder: Path, repository: str, *, private: bool = False) -> str:
    """Upload every file of an export; return the address of the repository.

    repository: on the hub, made if it is new, private if asked; the token is that of
    ``hf auth login`` or ``HF_TOKEN``. Files of earlier uploads stay there.
    Raises HoldfastError with the command that uploads again; ``folder`` is left as it is.
    """
    try:
        return upload(folder, repository, private=private, message="Export of Holdfast")
    except HoldfastError as error:
        again = f"hf upload {shlex.quote(repository)} {shlex.quote(str(folder))}"
        again += " --private" if private else ""
        raise HoldfastError(
            f"--push {error}; {folder} is written, and uploads with: {again}"
        ) from error


def upload(
    folder: Path, repository: str, *, private: bool, message: str, instead: str | None = None
) -> str:
    """Upload every file of a folder in one commit; return the address of the repository.

    instead: a pattern; files there that match it are removed unless the folder has them.
    Raises HoldfastError with the hub's reason.
    """
    check_repository(repository)
    from huggingface_hub import HfApi

    api = HfApi(library_name="holdfast")
    try:
        address = api.create_repo(repository, private=private or None, exist_ok=True)
        api.upload_folder(
            repo_id=address.repo_id,
            folder_path=folder,
            commit_message=message,
            delete_patterns=instead,
        )
    # The exceptions depend on the HTTP client that the library uses.
    except Exception as error:
        raise HoldfastError(f"{repository}: {reason(error, 'write')}") from error
    return str(address)


def reason(error: Exception, may: str) -> str:
    """Why a request to the hub failed, and what to check; may: what the token has to allow."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    why = _line(getattr(error, "server_message", None) or error)
    if status is None:
        return f"the hub was not reached ({why})"
    return f"the hub refused it ({status}: {why}); check the name, and that your token may {may}"


def _line(text: object) -> str:
    """A text on one line, shortened."""
    flat = " ".join(str(text).split())
    return flat if len(flat) <= 200 else flat[:197] + "..."


def push_memory(
    memory: Memory, repository: str, *, public: bool = False, list_facts: bool = False
) -> str:
    """Upload a memory; return the address of the repository.

    repository: USER/NAME, made if it is new, private unless ``public``; adapters that are gone here
    are removed there, but not from its history; list_facts: in the card too. Raises HoldfastError
    if nothing is learned, if the model has no name that others know, and with the hub's reason.
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
        named = has_short_name(memory.model)
        text = render_card(
            "shared.md",
            facts=memory.facts,
            lessons=memory.horizon,
            model=memory.model if named else f"`{memory.model}`",
            list=FACTS_FILE,
            repository=repository,
            list_facts=list_facts,
        )
        (folder / "README.md").write_text(text, encoding="utf-8")
        return upload(
            folder,
            repository,
            private=not public,
            message="Memory of Holdfast",
            instead=f"{LESSONS}/*",
        )


def pull_memory(
    repository: str, out: Path, revision: str | None = None, report: NoteReport = silent
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


def _download(repository: str, revision: str | None, folder: Path, report: NoteReport) -> None:
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
