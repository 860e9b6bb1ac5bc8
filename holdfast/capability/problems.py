r"""The problems of each suite, from their published files or the Hugging Face hub.

Every reader takes the folder of the files, None for the hub, and raises HoldfastError naming what
is missing, or the file and the line that are damaged. Source: app:res-capability.
"""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from typing import Any, Literal

from holdfast.capability.answers import last_box, numbers
from holdfast.capability.files import Placed, Row, problems_of, published
from holdfast.capability.suite import Problem

LANGUAGES = ("bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh")
LETTERS = "ABCD"
# What becomes of the items that MMLU-Redux marks as wrong.
Errors = Literal["drop", "keep", "correct"]


def gsm8k(data_root: Path | None) -> list[Problem]:
    """The test problems of GSM8K, of ``gsm8k/test.jsonl``; the target follows ``####``."""
    rows = published("gsm8k", data_root, ("openai/gsm8k", ["main"]), ["gsm8k/test.jsonl"])
    return problems_of("gsm8k", rows, _gsm8k_item)


def math(data_root: Path | None) -> list[Problem]:
    r"""The test problems of MATH; the target is the last ``\boxed{}`` of the solution.

    The 500 of ``math/math_splits/test.jsonl``, which are also the hub's, or else those of the tree
    ``math/MATH/test/*/*.json``: subjects in alphabetical order, problems in numerical order.
    """
    places = ["math/math_splits/test.jsonl", "math/MATH/test"]
    files = "*/*.json", lambda path: "/".join(path.parts[-3:])
    rows = published("math", data_root, ("HuggingFaceH4/MATH-500", [None]), places, files)
    return problems_of("math", rows, _math_item)


def mgsm(data_root: Path | None) -> list[Problem]:
    """The problems of MGSM, language by language, of every ``mgsm/mgsm_<language>.tsv``."""
    # Not MGSM's own repository on the hub: it holds a loading script, which datasets does not run.
    hub = "jbross-ibm-research/mgsm", LANGUAGES
    files = "mgsm_*.tsv", lambda path: path.stem.removeprefix("mgsm_")
    rows = published("mgsm", data_root, hub, ["mgsm"], files, ["question", "answer_number"])
    return problems_of("mgsm", rows, _mgsm_item)


def mmlu_redux(data_root: Path | None, errors: Errors) -> list[Problem]:
    """The items of ``<subject>/test.csv``: a header, choices as a Python list, answers from 0.

    errors: which of the items that are marked as wrong are kept, and with which answer.
    """
    folder = "mini_mmlu_fixed_csv"
    places = [f"mmlu_redux/{folder}", "mmlu_redux", folder]
    files = "*/test.csv", lambda path: path.parent.name
    hub: tuple[str, list[str]] = "edinburgh-dair/mmlu-redux-2.0", []
    rows = published("mmlu_redux", data_root, hub, places, files)
    return problems_of("mmlu_redux", rows, partial(_redux_item, errors))


def mmlu(data_root: Path | None) -> list[Problem]:
    """The items of ``<subject>_test.csv``: no header; question, four choices, letter."""
    places = ["mmlu/data/test", "mmlu/test", "data/test"]
    files = "*_test.csv", lambda path: path.stem.removesuffix("_test")
    columns = ["question", *LETTERS, "letter"]
    rows = published("mmlu", data_root, ("cais/mmlu", ["all"]), places, files, columns)
    if data_root is None:  # the hub has all subjects in one table
        by_subject: dict[str, list[Placed]] = {}
        for place, row in rows["all"]:
            by_subject.setdefault(str(row["subject"]), []).append((place, row))
        return problems_of("mmlu", by_subject, _mmlu_item)
    return problems_of("mmlu", rows, _mmlu_item)


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
    return Problem(f"math/{row.get('unique_id', file)}", str(group), _text(row["problem"]), target)


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
