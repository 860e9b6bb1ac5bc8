"""config.json: what a trajectory is, and which configurations may continue it."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.backbone.load import load_backbone, resolved_precision
from holdfast.core.config import differences, sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_json
from holdfast.learning.config import RunConfig
from holdfast.results.description import CONFIG_FILE, Description, is_described
from holdfast.streams import Stream

_VERSIONED = ("holdfast", "torch", "transformers", "tokenizers")


class Identity:
    """The settings that decide a trajectory's numbers, in its directory and in a configuration.

    directory: the trajectory's; exact_case: how answers of its stream are compared by default.
    """

    def __init__(self, directory: Path, config: RunConfig, *, exact_case: bool) -> None:
        self._directory = directory
        self._config = config
        self._exact_case = exact_case

    def numbers(self, backbone_fingerprint: str) -> dict[str, Any]:
        """Everything that changes the numbers, the weights of the backbone included."""
        numbers = self._config.numbers()
        if numbers["evaluation"]["match"] == "auto":
            numbers["evaluation"]["match"] = "exact" if self._exact_case else "ignore_case"
        precision = resolved_precision(self._config.backbone)
        return {**numbers, "precision": precision, "backbone": backbone_fingerprint}

    def sha256(self, backbone_fingerprint: str) -> str:
        """The identity of :meth:`numbers`."""
        return sha256_of(self.numbers(backbone_fingerprint))

    def check_directory(self) -> None:
        """Raise HoldfastError unless the directory is free, or a trajectory of this identity."""
        if is_free(self._directory):
            return
        backbone = Description.read(self._directory).backbone
        if backbone["name"] == self._config.backbone.name:
            # The weights themselves are compared when they are loaded.
            self.check(backbone["fingerprint"])
        else:
            self.check(load_backbone(self._config.backbone).fingerprint)

    def check(self, backbone_fingerprint: str) -> None:
        """Raise HoldfastError naming each field in which the directory differs."""
        if not is_described(self._directory):
            return
        recorded = dict(Description.read(self._directory).numbers)
        changed = differences(recorded, self.numbers(backbone_fingerprint))
        if changed:
            raise HoldfastError(
                f"{self._directory}: holds a trajectory with other settings "
                f"({'; '.join(changed)}); choose another directory, or repeat its settings"
            )

    def write(self, stream: Stream, backbone_fingerprint: str) -> None:
        """Write config.json, whole or not at all."""
        write_json(
            self._directory / CONFIG_FILE,
            {
                "config": self._anywhere(),
                "identity": self.sha256(backbone_fingerprint),
                "numbers": self.numbers(backbone_fingerprint),
                "stream": {
                    "name": stream.name,
                    "tasks": len(stream.tasks),
                    "fingerprint": stream.fingerprint,
                },
                "backbone": {
                    "name": self._config.backbone.name,
                    "fingerprint": backbone_fingerprint,
                },
                "versions": {name: version(name) for name in _VERSIONED},
            },
        )

    def _anywhere(self) -> dict[str, Any]:
        """The settings, with a backbone that can be found from any working directory."""
        values = self._config.model_dump(mode="json")
        name = self._config.backbone.name
        if name != "embedded" and Path(name).is_dir():
            values["backbone"]["name"] = str(Path(name).absolute())
        return values


def is_free(directory: Path) -> bool:
    """Whether a trajectory can begin in a directory; False where one has.

    Raises HoldfastError when it holds something else, or cannot be read.
    """
    try:
        found = sorted(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        raise HoldfastError(
            f"{directory}: is a file, or below one; choose another directory"
        ) from None
    except OSError as error:
        raise HoldfastError(
            f"{directory}: cannot be read ({error.strerror}); choose another directory"
        ) from error
    if CONFIG_FILE in found:
        return False
    # A process killed at its very first write leaves a lock and an unfinished file.
    foreign = [name for name in found if name != ".lock" and not _unfinished(name)]
    if foreign:
        raise HoldfastError(
            f"{directory}: holds {foreign[0]} but no trajectory ({CONFIG_FILE}); "
            "choose an empty or a new directory"
        )
    return True


def _unfinished(name: str) -> bool:
    return name.startswith(f".{CONFIG_FILE}.") and name.endswith(".part")
