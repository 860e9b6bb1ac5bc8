"""Where the samples and the score of a suite are kept: beside the model that they belong to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from holdfast.capability.outcome import Item, Sample, score_of
from holdfast.core.config import differences
from holdfast.core.errors import HoldfastError
from holdfast.core.files import append
from holdfast.results.capability import Score, asked, read_result, write_result

_FIELDS = [one.name for one in fields(Sample)]


class Store:
    """``<suite>.samples.jsonl``, which grows sample by sample, and ``<suite>.json``.

    The latter holds what was asked from the first sample on, and the score once all is answered.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def finished(self, suite: str, settings: Mapping[str, Any]) -> bool:
        """Whether the suite has its score here; writes nothing.

        Raises HoldfastError when it was begun here with other settings, or the file is damaged.
        """
        record = read_result(self.directory, suite)
        if record is None:
            return False
        changed = differences(record["settings"], dict(settings))
        if changed:
            raise HoldfastError(
                f"{self.directory / suite}.json: was measured with other settings "
                f"({'; '.join(changed)}); repeat them, remove {suite}.json and "
                f"{suite}.samples.jsonl there, or choose another --out"
            )
        return record["score"] is not None

    def begin(self, suite: str, settings: Mapping[str, Any]) -> None:
        """Note what is asked, before the first sample; nothing when that is noted already."""
        if read_result(self.directory, suite) is None:
            self._samples(suite).unlink(missing_ok=True)  # nobody knows what they answer
            write_result(self.directory, suite, settings, None)

    def samples(self, suite: str) -> dict[str, Sample]:
        """The samples that are here already, by their ids; none when nothing was begun.

        A last line without its end is what a killed writer left, and is cut off. Raises
        HoldfastError for any other line that is no sample.
        """
        path = self._samples(suite)
        if not path.exists() or read_result(self.directory, suite) is None:
            return {}
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            os.truncate(path, len(whole))
        read = [_sample(path, n, line) for n, line in enumerate(whole.splitlines(), start=1)]
        return {sample.id: sample for sample in read}

    def add(self, suite: str, sample: Sample) -> None:
        """Keep one sample; it is on disk when this returns."""
        append(self._samples(suite), json.dumps(asdict(sample)) + "\n")

    def finish(self, suite: str, settings: Mapping[str, Any], samples: Sequence[Sample]) -> Score:
        """Write the score of a suite from the samples of all its items, and return it."""
        score = score_of(samples)
        write_result(self.directory, suite, settings, score)
        return score

    def _samples(self, suite: str) -> Path:
        return self.directory / f"{suite}.samples.jsonl"


def settings_of(model: str, items: Sequence[Item], options: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a measurement; see :func:`holdfast.results.capability.asked`."""
    told = ((item.id, item.prompt, item.target, item.details) for item in items)
    return asked(model, told, options)


def _sample(path: Path, number: int, line: bytes) -> Sample:
    try:
        values = json.loads(line)
        return Sample(**{key: values[key] for key in _FIELDS})
    except (ValueError, KeyError, TypeError):
        raise HoldfastError(
            f"{path} line {number}: is no sample; remove the line, and its item is asked again"
        ) from None
