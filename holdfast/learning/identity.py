"""config.json: the settings of a trajectory, and which configurations may continue it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.core.config import FORMAT, check_same, sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_json
from holdfast.core.processes import run_on_rank_zero
from holdfast.learning.config import RunConfig
from holdfast.model.chat import texts_sha256
from holdfast.model.hardware import device_of, resolved_precision
from holdfast.model.load import load_backbone, load_tokenizer
from holdfast.model.sources.fetch import lasting_name
from holdfast.results.record import CONFIG_FILE, Description, is_described
from holdfast.streams import Stream
from holdfast.streams.item import quoted

_VERSIONED = ("holdfast", "torch", "transformers", "tokenizers")


class Identity:
    """Compares a configuration with a trajectory's directory in the settings that change results.

    exact_case: whether the stream compares answers case-sensitively; tokenizer: the backbone's;
    None: load it if the chat template matters.
    """

    def __init__(
        self, directory: Path, config: RunConfig, *, exact_case: bool, tokenizer: Any = None
    ) -> None:
        self._directory = directory
        self._tokenizer = tokenizer
        self._config = config
        self._exact_case = exact_case

    def numbers(self, backbone_fingerprint: str) -> dict[str, Any]:
        """All settings that change the results, and the fingerprint of the backbone's weights."""
        numbers = self._config.numbers()
        if numbers["evaluation"]["match"] == "auto":
            numbers["evaluation"]["match"] = "exact" if self._exact_case else "ignore_case"
        # Dropout masks and samples differ between kinds of devices.
        device = device_of(self._config.backbone).type
        precision = resolved_precision(self._config.backbone)
        resolved = {"device": device, "precision": precision, "backbone": backbone_fingerprint}
        return {**numbers, **resolved, **self._chat_texts}

    @cached_property
    def _chat_texts(self) -> dict[str, str]:
        """A hash of the chat template's texts, which the backbone's fingerprint does not cover."""
        settings, backbone = self._config.template, self._config.backbone
        if settings.form == "paper":
            return {}
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(backbone.name, backbone.revision)
        return {"chat_template": texts_sha256(settings, self._tokenizer)}

    def sha256(self, backbone_fingerprint: str) -> str:
        """The sha256 of :meth:`numbers`, which is the trajectory's identity."""
        return sha256_of(self.numbers(backbone_fingerprint))

    def check_directory(self) -> None:
        """Raise HoldfastError unless the directory is free or holds this configuration's run."""
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
        described = Description.read(self._directory)
        recorded, wanted = dict(described.numbers), self.numbers(backbone_fingerprint)
        if self._config.evaluation.match == "auto":
            self._check_case(described, wanted)
        check_same(self._directory, "a trajectory", recorded, wanted)

    def _check_case(self, described: Description, wanted: Mapping[str, Any]) -> None:
        """Raise HoldfastError if case sensitivity and the name show that the streams differ."""
        matches = [numbers["evaluation"]["match"] for numbers in (described.numbers, wanted)]
        name, given = described.config["stream"]["name"], self._config.stream.name
        if matches[0] != matches[1] and name != given:
            raise HoldfastError(
                f"{self._directory}: holds a trajectory on another stream (stream.name: "
                f"{quoted(name)} -> {quoted(given)}); choose another directory, or repeat its "
                "settings"
            )

    def write(self, stream: Stream, backbone_fingerprint: str) -> None:
        """Write config.json atomically, with the path of a local backbone made absolute."""
        config, name = self._config.model_dump(mode="json"), self._config.backbone.name
        config["backbone"]["name"] = lasting_name(name)
        write_json(
            self._directory / CONFIG_FILE,
            {
                "format": FORMAT,
                "config": config,
                "identity": self.sha256(backbone_fingerprint),
                "numbers": self.numbers(backbone_fingerprint),
                "stream": {
                    "name": stream.name,
                    "tasks": len(stream.tasks),
                    "fingerprint": stream.fingerprint,
                },
                "backbone": {"name": name, "fingerprint": backbone_fingerprint},
                "versions": {name: version(name) for name in _VERSIONED},
            },
        )


def decided(config: RunConfig, directory: Path) -> RunConfig:
    """Replace the precision ``fastest``: by that of the directory's run, or by a probe's answer."""
    if config.backbone.precision != "fastest":
        return config
    if is_described(directory):
        precision = Description.read(directory).numbers.get("precision", "float32")
    else:
        precision = run_on_rank_zero(partial(resolved_precision, config.backbone))
    backbone = config.backbone.model_copy(update={"precision": precision})
    return config.model_copy(update={"backbone": backbone})


def is_free(directory: Path) -> bool:
    """Whether a trajectory can begin in a directory; False when one has already begun there.

    Raises HoldfastError when the directory holds other files or cannot be read.
    """
    try:
        names = sorted(path.name for path in directory.iterdir())
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
    if CONFIG_FILE in names:
        return False
    # A process killed during its first write leaves a lock and an unfinished file.
    begun = re.compile(rf"\.lock|\.{re.escape(CONFIG_FILE)}\..*\.part")
    if foreign := [name for name in names if not begun.fullmatch(name)]:
        raise HoldfastError(
            f"{directory}: holds {foreign[0]} but no trajectory ({CONFIG_FILE}); "
            "choose an empty or a new directory"
        )
    return True
