"""Read the problems of MMLU and of MMLU-Redux, from their published files or the hub."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from typing import Any, Literal

from holdfast.capability.data import Row, file_rows, hub_configs, hub_rows, located, problems_of
from holdfast.capability.outcome import Problem
from holdfast.core.errors import HoldfastError

LETTERS = "ABCD"
Errors = Literal["drop", "keep", "correct"]

_REDUX_HUB = "edinburgh-dair/mmlu-redux-2.0"
_MMLU_HUB = "cais/mmlu"


def redux_items(data_root: Path | None, errors: Errors) -> list[Problem]:
    """The items of ``<subject>/test.csv``: a header, choices as a Python list, answers from 0.

    data_root: None reads all 57 subjects from the hub; errors: which of the items that are marked
    as wrong are kept, and with which answer.
    Raises HoldfastError when the files are missing, or naming the line that is damaged.
    """
    if data_root is None:
        subjects = sorted(hub_configs("mmlu_redux", _REDUX_HUB))
        found = {name: hub_rows("mmlu_redux", _REDUX_HUB, name) for name in subjects}
    else:
        published = "mini_mmlu_fixed_csv"
        places = (f"mmlu_redux/{published}", "mmlu_redux", published)
        folder = located("mmlu_redux", data_root, *places)
        paths = _some("mmlu_redux", folder, "*/test.csv")
        found = {path.parent.name: list(file_rows(path)) for path in paths}
    return [
        problem
        for subject, rows in found.items()
        for problem in problems_of("mmlu_redux", rows, partial(_redux_item, subject, errors))
    ]


def mmlu_items(data_root: Path | None) -> list[Problem]:
    """The items of ``<subject>_test.csv``: no header; question, four choices, letter.

    data_root: None reads from the hub. Raises HoldfastError as :func:`redux_items` does.
    """
    found: dict[str, list[tuple[str, Row]]] = {}
    if data_root is None:
        for place, row in hub_rows("mmlu", _MMLU_HUB, "all"):
            found.setdefault(str(row["subject"]), []).append((place, row))
    else:
        folder = located("mmlu", data_root, "mmlu/data/test", "mmlu/test", "data/test")
        for path in _some("mmlu", folder, "*_test.csv"):
            rows = file_rows(path, ["question", *LETTERS, "letter"])
            found[path.stem.removesuffix("_test")] = list(rows)
    return [
        problem
        for subject, rows in found.items()
        for problem in problems_of("mmlu", rows, partial(_mmlu_item, subject))
    ]


def _some(suite: str, folder: Path, pattern: str) -> list[Path]:
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise HoldfastError(f"{suite}: {folder} holds no {pattern}; give its folder")
    return paths


def _mmlu_item(subject: str, number: int, row: Row) -> Problem:
    if "letter" not in row:
        return _item("mmlu", subject, number, row["question"], row["choices"], row["answer"])
    if None in row:  # cells beyond the last column
        raise ValueError("more than four choices and a letter")
    choices = [row[letter] for letter in LETTERS]
    return _item("mmlu", subject, number, row["question"], choices, [*LETTERS].index(row["letter"]))


def _redux_item(subject: str, errors: Errors, number: int, row: Row) -> Problem | None:
    choices, answer = row["choices"], int(row["answer"])
    if isinstance(choices, str):
        choices = ast.literal_eval(choices)
    item = partial(_item, "mmlu_redux", subject, number, row["question"], choices)
    if row["error_type"] == "ok" or errors == "keep":
        return item(answer)
    corrected = _corrected(row.get("correct_answer"), choices)
    return None if errors == "drop" or corrected is None else item(corrected)


def _corrected(given: Any, choices: list[str]) -> int | None:
    """The index of the choice that an annotator gave by letter, number from 0, or text; or None."""
    text = str(given if given is not None else "").strip()
    if len(text) == 1 and text in LETTERS:
        return LETTERS.index(text)
    if text.removesuffix(".0") in ("0", "1", "2", "3"):
        return int(text[0])
    return choices.index(text) if choices.count(text) == 1 else None


def _item(
    suite: str, subject: str, number: int, text: str, choices: list[str], answer: int
) -> Problem:
    if [type(one) for one in choices] != [str] * 4 or answer not in range(4):
        raise ValueError("not four choices and an answer of 0 to 3")
    name = f"{suite}/{subject}/{number}"
    return Problem(name, subject, text.strip(), LETTERS[answer], {"choices": list(choices)})
