"""Read the published files of MMLU and of MMLU-Redux."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from holdfast.capability.data import hub_configs, hub_rows, located
from holdfast.capability.outcome import Problem
from holdfast.core.errors import HoldfastError
from holdfast.core.own import regular

LETTERS = "ABCD"
Errors = Literal["drop", "keep", "correct"]

_REDUX_HUB = "edinburgh-dair/mmlu-redux-2.0"
_MMLU_HUB = "cais/mmlu"
_COLUMNS = ("question", "choices", "answer", "error_type")


def redux_items(data_root: Path, errors: Errors) -> list[Problem]:
    """The items of ``<subject>/test.csv``: a header, choices as a Python list, answers from 0.

    Raises HoldfastError when the files are missing, or naming the line that is damaged.
    """
    folder = located(
        "mmlu_redux",
        data_root,
        "mmlu_redux/mini_mmlu_fixed_csv",
        "mmlu_redux",
        "mini_mmlu_fixed_csv",
    )
    paths = sorted(folder.glob("*/test.csv"))
    if not paths:
        raise HoldfastError(f"mmlu_redux: {folder} holds no <subject>/test.csv; give its folder")
    return [
        item
        for path in paths
        for item in _redux_subject(str(path), path.parent.name, _with_header(path), errors)
    ]


def hub_items(errors: Errors) -> list[Problem]:
    """The items of MMLU-Redux from the hub, all 57 subjects."""
    return [
        item
        for subject in sorted(hub_configs("mmlu_redux", _REDUX_HUB))
        for item in _redux_subject(
            f"{_REDUX_HUB} {subject}",
            subject,
            enumerate(hub_rows("mmlu_redux", _REDUX_HUB, subject, "test"), start=1),
            errors,
        )
    ]


def mmlu_items(data_root: Path | None) -> list[Problem]:
    """The items of ``<subject>_test.csv``: no header; question, four choices, letter.

    data_root: None reads from the hub. Raises HoldfastError as :func:`redux_items` does.
    """
    if data_root is None:
        return _mmlu_hub()
    folder = located("mmlu", data_root, "mmlu/data/test", "mmlu/test", "data/test")
    paths = sorted(folder.glob("*_test.csv"))
    if not paths:
        raise HoldfastError(f"mmlu: {folder} holds no <subject>_test.csv; give its folder")
    items = []
    for path in paths:
        subject = path.stem.removesuffix("_test")
        for number, (line, row) in enumerate(_lines(path)):
            # Any text may be a choice, "None" too, so cells are not interpreted.
            if len(row) != 6 or row[5] not in tuple(LETTERS):
                raise HoldfastError(
                    f"{path} line {line}: is no question, four choices and a letter; "
                    "restore the published file"
                )
            items.append(_item("mmlu", subject, number, row[0], row[1:5], row[5]))
    return items


def _mmlu_hub() -> list[Problem]:
    counted: dict[str, int] = {}
    items = []
    for row in hub_rows("mmlu", _MMLU_HUB, "all", "test"):
        subject = str(row["subject"])
        number = counted[subject] = counted.get(subject, -1) + 1
        letter = LETTERS[int(row["answer"])]
        items.append(_item("mmlu", subject, number, row["question"], list(row["choices"]), letter))
    return items


def _redux_subject(
    place: str, subject: str, rows: Iterable[tuple[int, Mapping[str, Any]]], errors: Errors
) -> Iterator[Problem]:
    """The items of one subject that ``errors`` keeps, numbered by their row in the file, from 0."""
    for number, (line, row) in enumerate(rows):
        try:
            choices = row["choices"]
            choices = ast.literal_eval(choices) if isinstance(choices, str) else list(choices)
            answer = int(row["answer"])
            if [type(one) for one in choices] != [str] * 4 or answer not in range(4):
                raise ValueError
            text, kind = str(row["question"]), str(row["error_type"])
        except (KeyError, TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
            raise HoldfastError(
                f"{place} line {line}: is no question of MMLU-Redux ({', '.join(_COLUMNS)}, with "
                "four choices and an answer of 0 to 3); restore the published file"
            ) from None
        if kind != "ok" and errors != "keep":
            corrected = _corrected(row.get("correct_answer"), choices)
            if errors == "drop" or corrected is None:
                continue
            answer = corrected
        yield _item("mmlu_redux", subject, number, text, choices, LETTERS[answer])


def _corrected(given: Any, choices: list[str]) -> int | None:
    """The index of the choice that an annotator gave by letter, number from 0, or text; or None."""
    text = str(given if given is not None else "").strip()
    if len(text) == 1 and text in LETTERS:
        return LETTERS.index(text)
    if text.removesuffix(".0") in ("0", "1", "2", "3"):
        return int(text[0])
    return choices.index(text) if choices.count(text) == 1 else None


def _item(
    suite: str, subject: str, number: int, text: str, choices: list[str], letter: str
) -> Problem:
    return Problem(
        f"{suite}/{subject}/{number}", subject, text.strip(), letter, {"choices": choices}
    )


def _with_header(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    header: list[str] | None = None
    for number, row in _lines(path):
        if header is not None:
            yield number, dict(zip(header, row, strict=False))
            continue
        header = row
        missing = [name for name in _COLUMNS if name not in header]
        if missing:
            raise HoldfastError(
                f"{path}: has no column {missing[0]}; restore the published file of MMLU-Redux"
            )


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The non-empty rows of a CSV file, each after the number of its last line."""
    try:
        with regular(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for row in reader:
                if row:
                    yield reader.line_num, row
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise HoldfastError(f"{path}: is no CSV file in UTF-8 ({error}); restore it") from None
