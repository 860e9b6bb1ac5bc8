"""Read config.json, which describes a trajectory. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.claims import read_format
from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json

CONFIG_FILE = "config.json"
# Fields that ``numbers`` holds resolved: "auto" decided, the backbone by fingerprint, not name.
_RESOLVED = ("evaluation.match", "backbone")


def is_described(directory: Path) -> bool:
    """Whether a directory has a config.json, of a trajectory or of something else."""
    return (directory / CONFIG_FILE).is_file()


@dataclass(frozen=True)
class Description:
    """config: all settings, nested; numbers: those that affect results; identity: their sha256.

    stream: its name, tasks and fingerprint; backbone: its name and fingerprint; versions: those of
    the libraries.
    """

    config: Mapping[str, Any]
    identity: str
    numbers: Mapping[str, Any]
    stream: Mapping[str, Any]
    backbone: Mapping[str, Any]
    versions: Mapping[str, Any]

    @classmethod
    def read(cls, directory: Path) -> Description:
        """Read config.json and check it against its identity.

        Raises HoldfastError when the file is missing, damaged, edited or not a trajectory's.
        """
        path = directory / CONFIG_FILE
        values = read_format(path)
        try:
            found = cls(
                config=dict(values["config"]),
                identity=str(values["identity"]),
                numbers=dict(values["numbers"]),
                stream={name: values["stream"][name] for name in ("name", "tasks", "fingerprint")},
                backbone={name: values["backbone"][name] for name in ("name", "fingerprint")},
                versions=dict(values["versions"]),
            )
        except (KeyError, TypeError, ValueError):
            raise HoldfastError(
                f"{path}: is no trajectory's configuration; restore the file, or choose another "
                "directory"
            ) from None
        edited = next(_edited(found.config, found.numbers), None)
        if edited is None and sha256_of(found.numbers) != found.identity:
            edited = "its numbers are not those of its identity"
        if edited:
            raise HoldfastError(
                f"{path}: was edited after the trajectory began ({edited}); restore the file"
            )
        return found


def _edited(config: Any, numbers: Any, place: str = "") -> Iterator[str]:
    """Yield the settings that config and numbers both have, with different values."""
    if isinstance(config, Mapping) and isinstance(numbers, Mapping):
        for name in numbers.keys() & config.keys():
            yield from _edited(config[name], numbers[name], f"{place}.{name}" if place else name)
    elif config != numbers and place not in _RESOLVED:
        yield f"{place}: {json.dumps(numbers)} -> {json.dumps(config)}"


def is_trajectory(directory: Path) -> bool:
    """Whether a directory holds one trajectory; HoldfastError for a study of many."""
    if (directory / "study.json").is_file():
        cells = sorted(cell.parent for cell in directory.glob(f"cells/*/{CONFIG_FILE}"))
        named = f", such as {cells[0]}" if cells else ""
        raise HoldfastError(f"{directory}: is a study of many; give one of its trajectories{named}")
    if not is_described(directory):
        return False
    values = read_json(directory / CONFIG_FILE)  # a Hugging Face model also has a config.json
    return isinstance(values, dict) and "numbers" in values
