"""Upload a folder to the Hugging Face hub."""

from __future__ import annotations

import shlex
from pathlib import Path

from holdfast.core.errors import HoldfastError


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
