"""Read the problems of GSM8K, MATH and MGSM, from their published files or the Hugging Face hub.

Source: app:res-capability.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from holdfast.capability.data import Row, file_rows, hub_rows, located, problems_of
from holdfast.capability.extraction import last_box
from holdfast.capability.numerals import numbers
from holdfast.capability.outcome import Problem
from holdfast.core.errors import HoldfastError

LANGUAGES = ("bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh")

# Not MGSM's own repository on the hub: it holds a loading script, which datasets no longer runs.
_GSM8K, _MATH, _MGSM = "openai/gsm8k", "HuggingFaceH4/MATH-500", "jbross-ibm-research/mgsm"


def gsm8k(data_root: Path | None) -> list[Problem]:
    """The test problems of GSM8K; the target follows ``####``.

    data_root: holds ``gsm8k/test.jsonl``; None: the hub.
    Raises HoldfastError naming the file and the line.
    """
    if data_root is None:
        return problems_of("gsm8k", hub_rows("gsm8k", _GSM8K, "main"), _gsm8k_item)
    path = located("gsm8k", data_root, "gsm8k/test.jsonl")
    return problems_of("gsm8k", file_rows(path), _gsm8k_item)


def math(data_root: Path | None) -> list[Problem]:
    r"""The test problems of MATH; the target is the last ``\boxed{}`` of the solution.

    data_root: holds ``math/math_splits/test.jsonl`` (500 problems), which is preferred, or the
    tree ``math/MATH/test/*/*.json``. None: the 500 problems from the hub.
    Raises HoldfastError naming the file and the line.
    """
    if data_root is None:
        return problems_of("math", hub_rows("math", _MATH, None), _math_item)
    file = located("math", data_root, "math/math_splits/test.jsonl", "math/MATH/test")
    if file.is_file():
        return problems_of("math", file_rows(file), _math_item)
    # Subjects in alphabetical order, problems in numerical order.
    paths = sorted(file.glob("*/*.json"), key=lambda path: (path.parent, len(path.name), path))
    if not paths:
        raise HoldfastError(f"{file}: holds no problems in */*.json; get the published files again")
    rows = (
        (place, {**row, "unique_id": "/".join(path.parts[-3:])})
        for path in paths
        for place, row in file_rows(path)
    )
    return problems_of("math", rows, _math_item)


def mgsm(data_root: Path | None) -> list[Problem]:
    """The problems of MGSM in every language available, language by language.

    data_root: holds ``mgsm/mgsm_<language>.tsv``; None: all languages from the hub.
    Raises HoldfastError naming the file and the line.
    """
    if data_root is None:
        found = {language: hub_rows("mgsm", _MGSM, language) for language in LANGUAGES}
    else:
        first = [f"mgsm/mgsm_{language}.tsv" for language in ("en", *LANGUAGES)]
        folder = located("mgsm", data_root, *first).parent
        found = {
            path.stem.removeprefix("mgsm_"): list(file_rows(path, ["question", "answer_number"]))
            for path in sorted(folder.glob("mgsm_*.tsv"))
        }
    return [
        problem
        for language, rows in found.items()
        for problem in problems_of("mgsm", rows, partial(_mgsm_item, language))
    ]


def _gsm8k_item(number: int, row: Row) -> Problem:
    _, mark, target = row["answer"].rpartition("####")
    if not mark:
        raise ValueError('no "####" before its number')
    return Problem(f"gsm8k/{number + 1}", "", _text(row["question"]), _number(target))


def _math_item(_: int, row: Row) -> Problem:
    target = last_box(row["solution"])
    if target is None:
        raise ValueError("the solution has no complete \\boxed{}")
    group = row.get("subject") or row.get("type") or ""
    return Problem(f"math/{row['unique_id']}", str(group), _text(row["problem"]), target)


def _mgsm_item(language: str, number: int, row: Row) -> Problem:
    target = _number(str(row["answer_number"]))
    return Problem(f"mgsm/{language}/{number + 1}", language, _text(row["question"]), target)


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("no question")
    return value.strip()


def _number(text: str) -> str:
    """Parse a target; all published files write them in English notation."""
    found = numbers(text)
    if len(found) != 1:
        raise ValueError(f'the target "{text.strip()}" is no number')
    return found[0]
