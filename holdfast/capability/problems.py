r"""The problems of each suite, from their published files or the Hugging Face hub.

Every reader takes the folder of the files, None for the hub, and raises HoldfastError naming what
is missing, or the file and the line that are damaged. Source: app:res-capability.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from holdfast.capability.answers import last_box, numbers
from holdfast.capability.files import (
    Placed,
    Row,
    file_rows,
    hub_configs,
    hub_rows,
    located,
    located_files,
    problems_of,
)
from holdfast.capability.suite import Problem

LANGUAGES = ("bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh")
LETTERS = "ABCD"
# What becomes of the items that MMLU-Redux marks as wrong.
Errors = Literal["drop", "keep", "correct"]

# Not MGSM's own repository on the hub: it holds a loading script, which datasets no longer runs.
_GSM8K, _MATH, _MGSM = "openai/gsm8k", "HuggingFaceH4/MATH-500", "jbross-ibm-research/mgsm"
_REDUX, _MMLU = "edinburgh-dair/mmlu-redux-2.0", "cais/mmlu"


def gsm8k(data_root: Path | None) -> list[Problem]:
    """The test problems of GSM8K, of ``gsm8k/test.jsonl``; the target follows ``####``."""
    if data_root is None:
        rows: Iterable[Placed] = hub_rows("gsm8k", _GSM8K, "main")
    else:
        rows = file_rows(located("gsm8k", data_root, "gsm8k/test.jsonl"))
    return problems_of("gsm8k", {"": rows}, _gsm8k_item)


def math(data_root: Path | None) -> list[Problem]:
    r"""The test problems of MATH; the target is the last ``\boxed{}`` of the solution.

    The 500 of ``math/math_splits/test.jsonl``, which are also the hub's, or else those of the tree
    ``math/MATH/test/*/*.json``: subjects in alphabetical order, problems in numerical order.
    """
    if data_root is None:
        return problems_of("math", {"": hub_rows("math", _MATH, None)}, _math_item)
    place = located("math", data_root, "math/math_splits/test.jsonl", "math/MATH/test")
    if place.is_file():
        return problems_of("math", {"": file_rows(place)}, _math_item)
    paths = located_files("math", place, "*/*.json")
    in_order = sorted(paths, key=lambda path: (path.parent, len(path.name), path))
    found = {"/".join(path.parts[-3:]): file_rows(path) for path in in_order}
    return problems_of("math", found, _math_item)


def mgsm(data_root: Path | None) -> list[Problem]:
    """The problems of MGSM, language by language, of every ``mgsm/mgsm_<language>.tsv``."""
    if data_root is None:
        found = {language: hub_rows("mgsm", _MGSM, language) for language in LANGUAGES}
    else:
        first = [f"mgsm/mgsm_{language}.tsv" for language in ("en", *LANGUAGES)]
        folder = located("mgsm", data_root, *first).parent
        found = {
            path.stem.removeprefix("mgsm_"): list(file_rows(path, ["question", "answer_number"]))
            for path in located_files("mgsm", folder, "mgsm_*.tsv")
        }
    return problems_of("mgsm", found, _mgsm_item)


def mmlu_redux(data_root: Path | None, errors: Errors) -> list[Problem]:
    """The items of ``<subject>/test.csv``: a header, choices as a Python list, answers from 0.

    errors: which of the items that are marked as wrong are kept, and with which answer.
    """
    if data_root is None:
        names = hub_configs("mmlu_redux", _REDUX)
        found = {name: hub_rows("mmlu_redux", _REDUX, name) for name in names}
    else:
        published = "mini_mmlu_fixed_csv"
        places = (f"mmlu_redux/{published}", "mmlu_redux", published)
        folder = located("mmlu_redux", data_root, *places)
        paths = located_files("mmlu_redux", folder, "*/test.csv")
        found = {path.parent.name: list(file_rows(path)) for path in paths}
    return problems_of("mmlu_redux", found, partial(_redux_item, errors))


def mmlu(data_root: Path | None) -> list[Problem]:
    """The items of ``<subject>_test.csv``: no header; question, four choices, letter."""
    found: dict[str, list[Placed]] = {}
    if data_root is None:
        for place, row in hub_rows("mmlu", _MMLU, "all"):
            found.setdefault(str(row["subject"]), []).append((place, row))
    else:
        folder = located("mmlu", data_root, "mmlu/data/test", "mmlu/test", "data/test")
        for path in located_files("mmlu", folder, "*_test.csv"):
            rows = file_rows(path, ["question", *LETTERS, "letter"])
            found[path.stem.removesuffix("_test")] = list(rows)
    return problems_of("mmlu", found, _mmlu_item)


def _gsm8k_item(_: str, number: int, row: Row) -> Problem:
    _, mark, target = row["answer"].rpartition("####")
    if not mark:
        raise ValueError('no "####" before its number')
    return Problem(f"gsm8k/{number + 1}", "", _text(row["question"]), _number(target))


def _math_item(file: str, _: int, row: Row) -> Problem:
    target = last_box(row["solution"])
    if target is None:
        raise ValueError("the solution has no complete \\boxed{}")
    group = row.get("subject") or row.get("type") or ""
    return Problem(f"math/{file or row['unique_id']}", str(group), _text(row["problem"]), target)


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


def _mmlu_item(subject: str, number: int, row: Row) -> Problem:
    if "letter" not in row:
        return _choice("mmlu", subject, number, row["question"], row["choices"], row["answer"])
    if None in row:  # cells beyond the last column
        raise ValueError("more than four choices and a letter")
    choices, answer = [row[letter] for letter in LETTERS], [*LETTERS].index(row["letter"])
    return _choice("mmlu", subject, number, row["question"], choices, answer)


def _redux_item(errors: Errors, subject: str, number: int, row: Row) -> Problem | None:
    choices, answer = row["choices"], int(row["answer"])
    if isinstance(choices, str):
        choices = ast.literal_eval(choices)
    wrong = row["error_type"] != "ok" and errors != "keep"
    corrected = _corrected(row.get("correct_answer"), choices) if wrong else answer
    if wrong and (errors == "drop" or corrected is None):
        return None
    return _choice("mmlu_redux", subject, number, row["question"], choices, corrected)


def _corrected(given: Any, choices: list[str]) -> int | None:
    """The index of the choice that an annotator gave by letter, number from 0, or text; or None."""
    text = str(given if given is not None else "").strip()
    if len(text) == 1 and text in LETTERS:
        return LETTERS.index(text)
    if text.removesuffix(".0") in ("0", "1", "2", "3"):
        return int(text[0])
    return choices.index(text) if choices.count(text) == 1 else None


def _choice(
    suite: str, subject: str, number: int, text: str, choices: list[str], answer: Any
) -> Problem:
    if [type(one) for one in choices] != [str] * 4 or answer not in range(4):
        raise ValueError("not four choices and an answer of 0 to 3")
    name = f"{suite}/{subject}/{number}"
    return Problem(name, subject, text.strip(), LETTERS[answer], {"choices": list(choices)})
