"""Result files of capability suites, which measure a model's abilities other than recall.

They are ``capability/after_<T>/<suite>.json`` in a trajectory's directory, where T counts learned
tasks and 0 is the unmodified backbone. Source: app:res-capability.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import make_folder, read_bytes, read_json, write_json

_VERSIONED = ("holdfast", "torch", "transformers", "tokenizers", "lm_eval")


@dataclass(frozen=True)
class Score:
    """The counts of a suite.

    answered: items with an output or a prediction; extracted, failed: items in whose output an
    answer was found, or was not; by_group: ``items`` and ``correct`` of each group;
    bits_per_byte: of a text suite, which has no right answers; None for other suites.
    """

    items: int
    answered: int
    extracted: int
    failed: int
    correct: int
    by_group: dict[str, dict[str, int]]
    bits_per_byte: float | None = None

    @property
    def score(self) -> float | None:
        """The share of items that are correct, 0 to 1; None for a text suite."""
        return None if self.bits_per_byte is not None else self.correct / self.items


def text_score(items: int, bits_per_byte: float) -> Score:
    """The score of a text suite: every count of answers is 0."""
    return Score(items, 0, 0, 0, 0, {"": {"items": items, "correct": 0}}, bits_per_byte)


@dataclass(frozen=True)
class CapabilityRow:
    """The result of one suite at one boundary.

    after_task: tasks learned, 0 for the unmodified backbone; score: share of items that are
    correct, None for a text suite; items, answered, extracted, correct: counts;
    bits_per_byte: of a text suite, None for others; settings: of the measurement, without the
    model's fingerprint.
    """

    after_task: int
    suite: str
    score: float | None
    items: int
    answered: int
    extracted: int
    correct: int
    bits_per_byte: float | None
    settings: dict[str, Any]

    @property
    def value(self) -> float:
        """The score, or the bits per byte of a text suite."""
        value = self.score if self.bits_per_byte is None else self.bits_per_byte
        assert value is not None
        return value


def boundary_directory(trajectory: Path, after_task: int) -> Path:
    """The directory of the results after ``after_task`` learned tasks."""
    return trajectory / "capability" / f"after_{after_task}"


def measurement_settings(
    model: str, items: Iterable[tuple[Any, ...]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that identify a measurement, the suite's own ``options`` among them.

    model: its fingerprint; items: id, prompt, target and details of each item that is asked.
    """
    rows = [list(item) for item in items]
    return {"model": model, "items": len(rows), "data": sha256_of(rows), **options}


def model_after(identity: str, tasks: Iterable[str]) -> str:
    """A fingerprint, from the trajectory's identity and the fingerprints of the learned tasks."""
    return sha256_of([identity, *tasks])


def write_result(
    directory: Path, suite: str, settings: Mapping[str, Any], score: Score | None
) -> None:
    """Write ``<suite>.json``; create missing folders. score: None until the suite is finished."""
    record = {
        "suite": suite,
        "settings": dict(settings),
        "score": None if score is None else {"score": score.score, **asdict(score)},
        "versions": {name: _version(name) for name in _VERSIONED},
    }
    make_folder(directory.parent)
    write_json(make_folder(directory) / f"{suite}.json", record)


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def read_result(directory: Path, suite: str) -> dict[str, Any] | None:
    """Read what :func:`write_result` wrote; None if there is no file, HoldfastError if damaged."""
    path = directory / f"{suite}.json"
    if not path.exists():
        return None
    record = read_json(path)
    if not isinstance(record, dict) or not isinstance(record.get("settings"), dict):
        raise HoldfastError(
            f"{path}: is no result of a capability suite; remove it, or choose another place"
        )
    return record


def read_boundary(
    directory: Path, after_task: int, suites: Iterable[str] | None = None
) -> list[CapabilityRow]:
    """The finished results in one directory, ordered by suite.

    suites: read only these, as the directory may hold other JSON files; None for all.
    """
    named = None if suites is None else set(suites)
    rows = []
    for path in sorted(directory.glob("*.json")):
        if named is None or path.stem in named:
            record = read_result(directory, path.stem)
            if record is not None and record.get("score") is not None:
                rows.append(_row(path, after_task, record))
    return rows


def read_capability(trajectory_directory: Path | str) -> list[CapabilityRow]:
    """Every finished result of a trajectory, ordered by boundary and suite; may be empty.

    Raises HoldfastError naming a damaged file.
    """
    folders = []
    for folder in (Path(trajectory_directory) / "capability").glob("after_*"):
        number = folder.name.removeprefix("after_")
        if number.isdecimal() and folder.is_dir():
            folders.append((int(number), folder))
    return [row for task, folder in sorted(folders) for row in read_boundary(folder, task)]


def read_verdicts(directory: Path, row: CapabilityRow) -> dict[str, tuple[float, float]]:
    """The numerator and denominator that each item adds to a finished result, by item id.

    A correct answer gives (1, 1), a wrong one (0, 1), a text (bits, bytes). Empty if the suite's
    samples were not kept in the boundary's directory or do not have the counts of the result.
    """
    path = directory / f"{row.suite}.samples.jsonl"
    if not path.exists():
        return {}
    verdicts: dict[str, tuple[float, float]] = {}
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        try:
            sample = json.loads(line)
            details = sample["details"]
            text = (details["bits"], details["bytes"]) if row.score is None else None
            verdicts[str(sample["id"])] = text or (float(sample["correct"]), 1.0)
        except (ValueError, KeyError, TypeError):
            raise HoldfastError(
                f"{path} line {number}: is no sample; restore the file, or remove it and do without"
            ) from None
    right = sum(value for value, _ in verdicts.values())
    whole = len(verdicts) == row.items and (row.score is None or right == row.correct)
    return verdicts if whole else {}


def _row(path: Path, after_task: int, record: dict[str, Any]) -> CapabilityRow:
    counts = record["score"]
    try:
        bits = counts["bits_per_byte"]
        return CapabilityRow(
            after_task=after_task,
            suite=str(record["suite"]),
            score=None if counts["score"] is None else float(counts["score"]),
            **{key: int(counts[key]) for key in ("items", "answered", "extracted", "correct")},
            bits_per_byte=None if bits is None else float(bits),
            settings={key: value for key, value in record["settings"].items() if key != "model"},
        )
    except (KeyError, TypeError, ValueError):
        raise HoldfastError(
            f"{path}: is no result of a capability suite; remove it, or measure again elsewhere"
        ) from None
