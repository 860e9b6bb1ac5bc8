"""Models of the Hugging Face hub: safetensors, configuration and tokenizer, and no other file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.hub import hub_or_cache
from holdfast.core.reporting import NoteReport
from holdfast.model.sources.check import check_directory

# In the repository's top folder; `consolidated.safetensors` and the like repeat the weights.
_WANTED = re.compile(
    r"model([-.].*)?\.safetensors|[\w.-]+\.(json|jinja|model|tiktoken)|(vocab|merges)\.txt"
)


def wanted(path: str) -> bool:
    """Whether a repository's file is needed to load its model here."""
    return _WANTED.fullmatch(path) is not None


def find_on_hub(name: str) -> Path | None:
    """The folder of the hub's cache with this model, None if it has not all; sends no request."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    try:
        check_directory(folder)
    except HoldfastError:  # only a part is there
        return None
    return folder


def fetch_from_hub(name: str, report: NoteReport) -> Path:
    """Download a model of the hub into the hub's own cache; return its folder.

    Raises HoldfastError: no such model, no access to it, no answer, or the hub is turned off.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    with hub_or_cache() as answers, _one_line(name):
        if not answers or constants.HF_HUB_OFFLINE:
            why = "the hub is turned off (HF_HUB_OFFLINE)" if answers else "the hub does not answer"
            raise HoldfastError(
                f"{name}: no such directory, not in the hub's cache, and {why}; copy the model's "
                "directory or its .gguf file here and name that; the model `embedded` works offline"
            )
        info = HfApi().model_info(name, files_metadata=True)
        files = [file for file in info.siblings or () if wanted(file.rfilename)]
        total = sum(file.size or 0 for file in files)
        licence = getattr(info.card_data, "license", None) or "no licence is named"
        report(0, 0, f"{name}: licence {licence}, {total / 1e6:,.0f} MB to download from the hub")
        names = [file.rfilename for file in files]
        return Path(snapshot_download(name, allow_patterns=names, tqdm_class=bar(total, report)))


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turn the hub's exceptions into one line."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    try:
        yield
    except GatedRepoError as error:
        raise HoldfastError(
            f"{name}: its authors ask for a login; accept their terms on the hub, then `hf auth "
            "login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise HoldfastError(f"{name}: the hub has no such model, or not for you") from error
    except HFValidationError as error:
        raise HoldfastError(f"{name}: is no name of a model, no file and no directory") from error
    except (HfHubHTTPError, OSError) as error:
        reason = reason_of(error, 200)
        raise HoldfastError(f"{name}: cannot be fetched from the hub ({reason})") from error


def bar(total: int, report: NoteReport) -> type[Any]:
    """A progress bar class that draws nothing and reports the bytes that it counts."""
    from tqdm.auto import tqdm

    most = 0

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._counts_bytes = kwargs.get("unit") == "B"
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            nonlocal most
            if self._counts_bytes:
                self.n += int(n or 0)
                most = max(most, self.n)
                report(min(most, total), total, "downloading")
            return None

    return Bar
