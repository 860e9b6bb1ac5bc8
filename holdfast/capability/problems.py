"""Read the problems of GSM8K, MATH and MGSM, from their published files or the Hugging Face hub.

Source: app:res-capability.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.capability.data import located
from holdfast.capability.extraction import last_box
from holdfast.capability.numerals import numbers
from holdfast.capability.outcome import Problem
from holdfast.core.errors import HoldfastError
from holdfast.core.hub import hub_or_cache
from holdfast.core.own import regular
from holdfast.streams.hf_dataset import library

_AGAIN = "the file may be damaged: get it again"
LANGUAGES = ("bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh")

_Row: TypeAlias = tuple[str, Mapping[str, Any]]  # its place, and its values

# Not MGSM's own repository on the hub: it holds a loading script, which datasets no longer runs.
_GSM8K, _MATH, _MGSM = "openai/gsm8k", "HuggingFaceH4/MATH-500", "jbross-ibm-research/mgsm"


def gsm8k(data_root: Path | None) -> list[Problem]:
    """The test problems of GSM8K; the target follows ``####``.

    data_root: holds ``gsm8k/test.jsonl``; None: the hub.
    Raises HoldfastError naming the file and the line.
    """
    rows: Iterable[_Row]
    if data_root is None:
        rows = _hub(_GSM8K, "main")
    else:
        rows = _json_lines(located("gsm8k", data_root, "gsm8k/test.jsonl"))
    return [_gsm8k_item(place, number, row) for number, (place, row) in enumerate(rows, start=1)]


def math(data_root: Path | None) -> list[Problem]:
    r"""The test problems of MATH; the target is the last ``\boxed{}`` of the solution.

    data_root: holds ``math/math_splits/test.jsonl`` (500 problems), which is preferred, or the
    tree ``math/MATH/test/*/*.json``. None: the 500 problems from the hub.
    Raises HoldfastError naming the file and the line.
    """
    rows: Iterable[_Row]
    if data_root is None:
        rows = _hub(_MATH, None)
    else:
        file = located("math", data_root, "math/math_splits/test.jsonl", "math/MATH/test")
        rows = _json_lines(file) if file.is_file() else _json_tree(file)
    return [_math_item(place, row) for place, row in rows]


def mgsm(data_root: Path | None) -> list[Problem]:
    """The problems of MGSM in every language available, language by language.

    data_root: holds ``mgsm/mgsm_<language>.tsv``; None: all languages from the hub.
    Raises HoldfastError naming the file and the line.
    """
    if data_root is None:
        return [item for language in LANGUAGES for item in _mgsm_hub(language)]
    first = [f"mgsm/mgsm_{language}.tsv" for language in ("en", *LANGUAGES)]
    folder = located("mgsm", data_root, *first).parent
    return [
        item
        for path in sorted(folder.glob("mgsm_*.tsv"))
        for item in _mgsm_file(path, path.stem.removeprefix("mgsm_"))
    ]


def _gsm8k_item(place: str, number: int, row: Mapping[str, Any]) -> Problem:
    question, answer = _texts(place, row, "question", "answer")
    _, mark, target = answer.rpartition("####")
    if not mark:
        raise HoldfastError(f'{place}: "answer" has no "####" before its number; {_AGAIN}')
    return Problem(f"gsm8k/{number}", "", question, _number(place, target))


def _math_item(place: str, row: Mapping[str, Any]) -> Problem:
    question, solution = _texts(place, row, "problem", "solution")
    target = last_box(solution)
    if target is None:
        raise HoldfastError(f"{place}: the solution has no complete \\boxed{{}}; {_AGAIN}")
    name = row.get("unique_id") or "/".join(Path(place).parts[-3:])
    group = row.get("subject") or row.get("type") or ""
    return Problem(f"math/{name}", str(group), question, target)


def _mgsm_file(path: Path, language: str) -> Iterator[Problem]:
    for number, line in _lines(path):
        place = f"{path} line {number}"
        # No quoting: a question may begin with a quotation mark.
        question, tab, target = line.rpartition("\t")
        if not tab or not question.strip():
            raise HoldfastError(f"{place}: is no question, tab and number; {_AGAIN}")
        yield Problem(f"mgsm/{language}/{number}", language, question, _number(place, target))


def _mgsm_hub(language: str) -> Iterator[Problem]:
    for number, (place, row) in enumerate(_hub(_MGSM, language), start=1):
        (question,) = _texts(place, row, "question")
        target = _number(place, str(row.get("answer_number")))
        yield Problem(f"mgsm/{language}/{number}", language, question, target)


def _number(place: str, text: str) -> str:
    """Parse a target; all published files write them in English notation."""
    found = numbers(text)
    if len(found) != 1:
        raise HoldfastError(f'{place}: the target "{text.strip()}" is no number; {_AGAIN}')
    return found[0]


def _texts(place: str, row: Mapping[str, Any], *keys: str) -> list[str]:
    for key in keys:
        if not isinstance(row.get(key), str) or not row[key].strip():
            raise HoldfastError(f'{place}: "{key}" is missing or empty; {_AGAIN}')
    return [row[key].strip() for key in keys]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    # Not splitlines: a question may hold one of Unicode's other line separators.
    for number, line in enumerate(_read(path).split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def _json_lines(path: Path) -> Iterator[_Row]:
    for number, line in _lines(path):
        yield f"{path} line {number}", _object(f"{path} line {number}", line)


def _json_tree(folder: Path) -> Iterator[_Row]:
    # Subjects in alphabetical order, problems in numerical order.
    paths = sorted(folder.glob("*/*.json"), key=lambda path: (path.parent, len(path.name), path))
    if not paths:
        raise HoldfastError(f"{folder}: holds no problems in */*.json; {_AGAIN}")
    for path in paths:
        yield str(path), _object(str(path), _read(path))


def _object(place: str, text: str) -> Mapping[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise HoldfastError(f"{place}: is no JSON object; {_AGAIN}")
    return row


def _read(path: Path) -> str:
    try:
        return regular(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8"
        raise HoldfastError(f"{path}: cannot be read ({reason})") from error


def _hub(name: str, config: str | None) -> list[_Row]:
    """The rows of a test split, each after its place."""
    load_dataset = library().load_dataset
    reachable = True
    try:
        with hub_or_cache() as reachable:
            rows = list(load_dataset(name, config, split="test"))
    # datasets does not wrap errors of the network, the hub, the file formats and Arrow.
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        if not reachable and isinstance(error, OSError):
            reason = "not in the hub's cache, and the hub does not answer"
        raise HoldfastError(
            f"dataset {name}: cannot be loaded ({reason}); check the network, or download the "
            "published files and give their folder with --data-root"
        ) from error
    return [(f"dataset {name} row {number}", row) for number, row in enumerate(rows, start=1)]
