"""config.json: what a trajectory's directory says of itself. Its one reader; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json

CONFIG_FILE = "config.json"


def is_described(directory: Path) -> bool:
    """Whether a directory has a config.json, a trajectory's or another one."""
    return (directory / CONFIG_FILE).is_file()


@dataclass(frozen=True)
class Description:
    """config: all settings, nested; numbers: those that decide the numbers; identity: their sha256.

    stream: its name, tasks and fingerprint; backbone: its name and fingerprint; versions: of the
    libraries.
    """

    config: Mapping[str, Any]
    identity: str
    numbers: Mapping[str, Any]
    stream: Mapping[str, Any]
    backbone: Mapping[str, Any]
    versions: Mapping[str, Any]

    @classmethod
    def read(cls, directory: Path) -> Description:
        """Raise HoldfastError when the file is missing, damaged, or no trajectory's."""
        path = directory / CONFIG_FILE
        recorded = read_json(path)
        try:
            return cls(
                config=dict(recorded["config"]),
                identity=str(recorded["identity"]),
                numbers=dict(recorded["numbers"]),
                stream={
                    name: recorded["stream"][name] for name in ("name", "tasks", "fingerprint")
                },
                backbone={name: recorded["backbone"][name] for name in ("name", "fingerprint")},
                versions=dict(recorded["versions"]),
            )
        except (KeyError, TypeError, ValueError):
            raise HoldfastError(
                f"{path}: is no trajectory's configuration; restore the file, or choose another "
                "directory"
            ) from None


def is_trajectory(directory: Path) -> bool:
    """Whether a directory holds one trajectory; HoldfastError for a study of many."""
    if (directory / "study.json").is_file():
        cells = sorted(cell.parent for cell in directory.glob(f"cells/*/{CONFIG_FILE}"))
        named = f", such as {cells[0]}" if cells else ""
        raise HoldfastError(f"{directory}: is a study of many; give one of its trajectories{named}")
    if not is_described(directory):
        return False
    values = read_json(directory / CONFIG_FILE)  # a model's directory has a file of that name too
    return isinstance(values, dict) and "numbers" in values
