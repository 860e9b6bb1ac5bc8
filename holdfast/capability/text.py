"""Suites of plain text, scored by bits per byte, the lower the better: ``text``, ``corpus``."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from holdfast.capability.problems import Problem, Sample, located
from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.evaluation.text import SETTINGS, Passage, everyday_passages, lengths
from holdfast.model.backbone import Backbone

# Not in the pretraining data of the embedded model; see scripts/pretraining_data.py.
HELD_OUT_TITLES = ("Silas Marner: The Weaver of Raveloe", "The Warden")
_HELD_OUT_CHARACTERS = 32_768  # characters of each title, from its beginning
_PASSAGE_CHARACTERS = 4_096
_PASSAGES_AT_ONCE = 4
_SHOWN = 60  # characters of a passage that its sample shows


@dataclass(frozen=True)
class Text:
    """A suite of texts; a sample's details hold its bits, bytes and tokens."""

    name: Literal["text", "corpus"] = "text"
    settings: ClassVar[dict[str, Any]] = SETTINGS

    def items(self, data_root: Path | None) -> list[Problem]:
        if self.name == "text":
            passages = everyday_passages()
        elif data_root is None:
            raise HoldfastError(
                "corpus: needs a folder with corpus/*.txt or *.txt.gz; give it with --data-root, "
                "or leave corpus out of --tasks"
            )
        else:
            passages = held_out_passages(located("corpus", data_root, "corpus"))
        return [Problem(passage.id, "", passage.text, "") for passage in passages]

    def check(self, backbone: Backbone) -> None:
        """Any model is accepted."""

    def answer(
        self, backbone: Backbone, items: Sequence[Problem], _: Path, answered: Callable[[int], None]
    ) -> Iterator[Sample]:
        """Yield a sample of each item, in order; answered: called with how many there are."""
        for start in range(0, len(items), _PASSAGES_AT_ONCE):
            part = items[start : start + _PASSAGES_AT_ONCE]
            measured = lengths(backbone, [item.prompt for item in part])
            for item, length in zip(part, measured, strict=True):
                opening = item.prompt[:_SHOWN]
                yield Sample(item.id, "", opening, "", None, "", False, length._asdict())
            answered(start + len(part))


def held_out_passages(folder: Path) -> list[Passage]:
    """Passages of whole paragraphs, about 4,096 characters each, of the held-out texts.

    From files whose texts begin with a heading ``= Title = Author``: the first 32,768 characters
    of each of ``HELD_OUT_TITLES``. From any other file: its last 32,768 characters.
    """
    passages = []
    for path in sorted([*folder.glob("*.txt"), *folder.glob("*.txt.gz")]):
        # The text before the first heading, then a title and a text in turn.
        _, *parts = whole = re.split(r"^= (.+?) = .+$", _read(path), flags=re.MULTILINE)
        for title, part in zip(parts[::2], parts[1::2], strict=True):
            if title in HELD_OUT_TITLES:
                passages += _cut(title, part.strip())
        if not parts:
            name = path.name.removesuffix(".gz").removesuffix(".txt")
            passages += _cut(name, whole[0][-_HELD_OUT_CHARACTERS:].strip())
    if not passages:
        raise HoldfastError(
            f"corpus: {folder} holds no *.txt or *.txt.gz with a held-out text; give another "
            "--data-root, or leave corpus out of --tasks"
        )
    return passages


def _cut(title: str, text: str) -> list[Passage]:
    """Cut about the first ``_HELD_OUT_CHARACTERS`` characters of a text into whole paragraphs."""
    passages: list[str] = [""]
    for paragraph in re.findall(r"(?s).+?(?:\n\n+|\Z)", text):
        if sum(map(len, passages)) >= _HELD_OUT_CHARACTERS:
            break
        if len(passages[-1]) >= _PASSAGE_CHARACTERS:
            passages.append("")
        passages[-1] += paragraph
    name = "_".join(re.findall(r"\w+", title.lower()))
    texts = [text.strip() for text in passages if text.strip()]
    return [Passage(f"corpus/{name}/{number}", text) for number, text in enumerate(texts)]


def _read(path: Path) -> str:
    try:
        regular(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read().decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise HoldfastError(f"{path}: is no text in UTF-8 that can be read ({error})") from None
    return text.replace("\r\n", "\n")
