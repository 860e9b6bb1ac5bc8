"""Locate the published questions of a suite: files below a folder, or the hub."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.hub import hub_or_cache
from holdfast.streams.hf_dataset import library


def located(suite: str, data_root: Path, *places: str) -> Path:
    """The first of ``places`` that exists below ``data_root/capability``, or else ``data_root``.

    places: paths such as ``gsm8k/test.jsonl``, the preferred first.
    Raises HoldfastError when none exists, naming the preferred one.
    """
    nested = data_root / "capability"
    for folder in (nested, data_root):
        for place in places:
            if (folder / place).exists():
                return folder / place
    missing = (nested if nested.is_dir() else data_root) / places[0]
    raise HoldfastError(
        f"{suite}: {missing} is not there; give --data-root a folder that holds it, or leave "
        f"{suite} out of --tasks"
    )


def hub_rows(suite: str, path: str, config: str | None, split: str) -> list[dict[str, Any]]:
    """The rows of a dataset of the Hugging Face hub, or of its cached copy.

    Raises HoldfastError when `datasets` is not installed or the dataset cannot be loaded.
    """
    with _reading(suite, path):
        return [dict(row) for row in library().load_dataset(path, config, split=split)]


def hub_configs(suite: str, path: str) -> list[str]:
    """The names of a hub dataset's configurations; raises as :func:`hub_rows` does."""
    with _reading(suite, path):
        names: list[str] = library().get_dataset_config_names(path)
        return names


@contextlib.contextmanager
def _reading(suite: str, path: str) -> Any:
    library()  # outside the try: its error for a missing installation is not wrapped
    reachable = True
    try:
        with hub_or_cache() as reachable:
            yield
    # datasets does not wrap errors of the network, the hub, the file formats and Arrow.
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        if not reachable:
            reason = "not in the hub's cache, and the hub does not answer"
        raise HoldfastError(
            f"{suite}: dataset {path} cannot be loaded ({reason}); give a folder of its published "
            f"files with --data-root, or leave {suite} out of --tasks"
        ) from error
