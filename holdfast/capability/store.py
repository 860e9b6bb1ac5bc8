"""Store the samples and the score of a suite, in its model's directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from holdfast.capability.outcome import Problem, Sample, score_of
from holdfast.core.claims import check_same
from holdfast.core.errors import HoldfastError
from holdfast.core.files import append, cut, read_bytes
from holdfast.results.capability import Score, asked, read_result, write_result

_FIELDS = [one.name for one in fields(Sample)]


class SampleStore:
    """``<suite>.samples.jsonl``, which grows sample by sample, and ``<suite>.json``.

    The latter holds the settings before the first sample, and the score after the last.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def finished(self, suite: str, settings: Mapping[str, Any]) -> bool:
        """Whether the suite's score is stored; writes nothing.

        Raises HoldfastError when it was begun with other settings, or the file is damaged.
        """
        record = read_result(self.directory, suite)
        if record is None:
            return False
        check_same(self.directory, f"{suite}.json", record["settings"], settings)
        return record["score"] is not None

    def begin(self, suite: str, settings: Mapping[str, Any]) -> None:
        """Write the settings before the first sample; does nothing when they are written."""
        if read_result(self.directory, suite) is None:
            self._samples(suite).unlink(missing_ok=True)  # their settings are unknown
            write_result(self.directory, suite, settings, None)

    def samples(self, suite: str) -> dict[str, Sample]:
        """The stored samples by id; empty when the suite was not begun.

        A last line without a line feed, left by a killed writer, is cut off. Raises HoldfastError
        for any other line that is no sample.
        """
        path = self._samples(suite)
        if not path.exists() or read_result(self.directory, suite) is None:
            return {}
        text = read_bytes(path)
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            cut(path, len(whole))
        read = [_sample(path, n, line) for n, line in enumerate(whole.splitlines(), start=1)]
        return {sample.id: sample for sample in read}

    def add(self, suite: str, sample: Sample) -> None:
        """Append one sample; it is on disk when this returns."""
        append(self._samples(suite), json.dumps(asdict(sample)) + "\n")

    def finish(self, suite: str, settings: Mapping[str, Any], samples: Sequence[Sample]) -> Score:
        """Write the score of a suite from the samples of all its items, and return it."""
        score = score_of(samples)
        write_result(self.directory, suite, settings, score)
        return score

    def _samples(self, suite: str) -> Path:
        return self.directory / f"{suite}.samples.jsonl"


def settings_of(model: str, items: Sequence[Problem], options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that identify a measurement; see :func:`holdfast.results.capability.asked`."""
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
