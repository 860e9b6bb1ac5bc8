"""The problems of each suite, from their published files or the Hugging Face hub, and samples.

Every reader takes the folder of the files, None for the hub, and raises HoldfastError naming a
missing file, or the file and line that are damaged. Source: app:res-capability.
"""

from __future__ import annotations

import ast
import csv
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holdfast.core.errors import HoldfastError, described
from holdfast.core.file_checks import regular
from holdfast.core.hub import hub_or_cache
from holdfast.streams.hf_dataset import library

LANGUAGES = ("bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh")
LETTERS = "ABCD"
# How to treat the items that MMLU-Redux marks as wrong; see `mmlu_redux`.
Errors = Literal["drop", "keep", "correct"]


@dataclass(frozen=True)
class Problem:
    """One question of a suite, as in its files.

    id: unique in its suite and the same in every run, such as mgsm/bn/17; group: a language or a
    subject, "" if the suite has none; prompt: the question, with its labelled choices if it has
    some; target: the right answer, or the letter of the right choice.
    """

    id: str
    group: str
    prompt: str
    target: str


@dataclass(frozen=True)
class Sample:
    """One answer, stored for audit as one line of JSON.

    id, group: the item's; prompt: the text that the model read, or the beginning of a text suite's;
    output: the generated text, "" if likelihoods decide; extracted: the answer found, or None;
    target: the right answer; details: JSON values, such as the log-probability of each letter.
    """

    id: str
    group: str
    prompt: str
    output: str
    extracted: str | None
    target: str
    correct: bool
    details: dict[str, Any] = field(default_factory=dict)


def problems(suite: str, data_root: Path | None, errors: Errors = "drop") -> list[Problem]:
    """The problems of a suite by its name; errors: of ``mmlu_redux`` alone."""
    if suite == "mmlu_redux":
        return mmlu_redux(data_root, errors)
    return {"gsm8k": gsm8k, "math": math, "mgsm": mgsm, "mmlu": mmlu}[suite](data_root)


def gsm8k(data_root: Path | None) -> list[Problem]:
    """The test problems of GSM8K, from ``gsm8k/test.jsonl``; the target follows ``####``."""
    rows = published("gsm8k", data_root, ("openai/gsm8k", ["main"]), ["gsm8k/test.jsonl"])
    return problems_of("gsm8k", rows, _gsm8k_item)


def math(data_root: Path | None) -> list[Problem]:
    r"""The test problems of MATH; the target is the last ``\boxed{}`` of the solution.

    The 500 in ``math/math_splits/test.jsonl``, which the hub has too, or else those in
    ``math/MATH/test/*/*.json``: subjects in alphabetical order, problems in numerical order.
    """
    places = ["math/math_splits/test.jsonl", "math/MATH/test"]
    files = "*/*.json", lambda path: "/".join(path.parts[-3:])
    rows = published("math", data_root, ("HuggingFaceH4/MATH-500", [None]), places, files)
    return problems_of("math", rows, _math_item)


def mgsm(data_root: Path | None) -> list[Problem]:
    """The problems of MGSM, language by language, from every ``mgsm/mgsm_<language>.tsv``."""
    # Not MGSM's own repository on the hub: it holds a loading script, which datasets does not run.
    hub = "jbross-ibm-research/mgsm", LANGUAGES
    files = "mgsm_*.tsv", lambda path: path.stem.removeprefix("mgsm_")
    rows = published("mgsm", data_root, hub, ["mgsm"], files, ["question", "answer_number"])
    return problems_of("mgsm", rows, _mgsm_item)


def mmlu_redux(data_root: Path | None, errors: Errors) -> list[Problem]:
    """The items of ``<subject>/test.csv``: a header, choices as a Python list, answers from 0.

    errors: how to treat items that MMLU-Redux marks as wrong. drop: leave them out; keep: with
    their original answer; correct: with the corrected answer, or left out if there is not exactly
    one.
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
        by_subject: dict[str, list[Placed]] = defaultdict(list)
        for place, row in rows["all"]:
            by_subject[str(row["subject"])].append((place, row))
        return problems_of("mmlu", by_subject, _mmlu_item)
    return problems_of("mmlu", rows, _mmlu_item)


def _gsm8k_item(_: str, number: int, row: Row) -> Problem:
    _, mark, target = row["answer"].rpartition("####")
    if not mark:
        raise ValueError('no "####" before its number')
    return Problem(f"gsm8k/{number + 1}", "", _text(row["question"]), _number(target))


def _math_item(file: str, _: int, row: Row) -> Problem:
    target = boxed(row["solution"])
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
    number = text.strip().replace(",", "")
    if not re.fullmatch(r"-?\d+(\.\d+)?", number):
        raise ValueError(f'the target "{text.strip()}" is no number')
    return number


def boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed{}``, as MATH's own evaluation reads it; None without one.

    A box that does not close counts as none.
    """
    of_math = strings_of_math()
    try:
        box = of_math.last_boxed_only_string(text)
        return None if box is None else str(of_math.remove_boxed(box))
    except AssertionError:  # another command, such as \fbox or \boxedly
        return None


def strings_of_math() -> Any:
    """The harness's module that finds and compares MATH's answers."""
    with warnings.catch_warnings():  # Python warns of its escapes when it first compiles it
        warnings.simplefilter("ignore")
        from lm_eval.tasks.hendrycks_math import utils
    return utils


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


def _corrected(correction: Any, choices: list[str]) -> int | None:
    """The index of the choice that an annotator gave by letter, number from 0, or text; or None."""
    text = str(correction if correction is not None else "").strip()
    if len(text) == 1 and text in LETTERS:
        return LETTERS.index(text)
    if text.removesuffix(".0") in ("0", "1", "2", "3"):
        return int(text[0])
    return choices.index(text) if choices.count(text) == 1 else None


def _choice(
    suite: str, subject: str, number: int, text: str, choices: list[str], answer: Any
) -> Problem:
    if [type(choice) for choice in choices] != [str] * 4 or answer not in range(4):
        raise ValueError("not four choices and an answer of 0 to 3")
    lines = [f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=True)]
    prompt = "\n".join([text.strip(), *lines])
    return Problem(f"{suite}/{subject}/{number}", subject, prompt, LETTERS[answer])


Row: TypeAlias = Mapping[str, Any]
Placed: TypeAlias = tuple[str, Row]  # the row's place in its source, and the row
# What reading a damaged value raises; the second line: literals and deep nesting.
_DAMAGE = (
    *(LookupError, TypeError, ValueError, AttributeError),
    *(SyntaxError, MemoryError, RecursionError),
)


def located(suite: str, data_root: Path, *places: str) -> Path:
    """The first of ``places``, such as ``gsm8k/test.jsonl``, below ``data_root/capability``.

    Or else below ``data_root``. Raises HoldfastError naming the first if there is none.
    """
    nested = data_root / "capability"
    for folder in (nested, data_root):
        for place in places:
            if (folder / place).exists():
                return folder / place
    missing = (nested if nested.is_dir() else data_root) / places[0]
    raise HoldfastError(
        f"{suite}: {missing} is not there; give --data-root a folder that holds it, or leave "
        f"{suite} out of --tasks"
    )


def published(
    suite: str,
    data_root: Path | None,
    hub: tuple[str, Sequence[str | None]],
    places: Sequence[str],
    files: tuple[str, Callable[[Path], str]] = ("", str),
    columns: Sequence[str] | None = None,
) -> dict[str, Iterable[Placed]]:
    """The rows of a suite, group by group.

    hub: a dataset's name and its configurations, each a group; all if none is given. places: of a
    file or folder, see :func:`located`. files: the pattern of a folder's files, and the function
    from a path to its group. columns: the header of tables that have none.
    """
    if data_root is None:
        return _from_hub(suite, *hub)
    pattern, group_of = files
    place = located(suite, data_root, *places)
    if place.is_file():
        return {"": file_rows(place, columns)}
    # Files whose name is a number are in numerical order.
    paths = sorted(
        place.glob(pattern),
        key=lambda path: (path.parent, len(path.stem) if path.stem.isdigit() else 0, path),
    )
    if not paths:
        raise HoldfastError(f"{suite}: {place} holds no {pattern}; get the published files again")
    return {group_of(path): file_rows(path, columns) for path in paths}


def problems_of(
    suite: str,
    groups: Mapping[str, Iterable[Placed]],
    read: Callable[[str, int, Row], Problem | None],
) -> list[Problem]:
    """Every row as a problem, without those for which ``read`` returns None.

    groups: rows by language or subject; read: takes the group, the row's number in it (from 0) and
    the row, and raises an error of ``_DAMAGE`` for a damaged row.
    """
    problems = []
    for group, rows in groups.items():
        for number, (place, row) in enumerate(rows):
            try:
                problems.append(read(group, number, row))
            except _DAMAGE as error:
                raise HoldfastError(
                    f"{place}: is no question of {suite} ({described(error, 200)}); get the "
                    "published file again"
                ) from None
    return [problem for problem in problems if problem is not None]


def file_rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[Placed]:
    """The objects of a .json or .jsonl file, or the rows of a .csv or .tsv file, with their places.

    columns: of a table without a header.
    """
    place = str(path)
    try:
        with regular(path).open(encoding="utf-8-sig", newline="") as file:
            if path.suffix == ".json":
                yield place, json.load(file)
            elif path.suffix == ".jsonl":
                for number, line in enumerate(file, start=1):
                    place = f"{path} line {number}"
                    if line.strip():
                        yield place, json.loads(line)
            else:
                # In a .tsv file a question may begin with a quotation mark.
                tabs = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
                style: dict[str, Any] = tabs if path.suffix == ".tsv" else {}
                reader = csv.DictReader(file, columns, **style)
                for row in reader:
                    yield f"{path} line {reader.line_num}", row
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError, csv.Error) as error:
        raise HoldfastError(
            f"{place}: is damaged ({described(error, 200)}); get the published file again"
        ) from None


def _from_hub(suite: str, name: str, configs: Sequence[str | None]) -> dict[str, Iterable[Placed]]:
    datasets = library()  # outside the try: its error for a missing installation is not wrapped
    reachable = True
    loaded = {}
    try:
        with hub_or_cache() as reachable:
            for config in configs or sorted(datasets.get_dataset_config_names(name)):
                loaded[config] = list(datasets.load_dataset(name, config, split="test"))
    # datasets does not wrap errors of the network, the hub, file formats and Arrow.
    except Exception as error:
        away = "not in the hub's cache, and the hub does not answer"
        reason = described(error, 200) if reachable else away
        raise HoldfastError(
            f"{suite}: dataset {name} cannot be loaded ({reason}); "
            f"give a folder of its published files with --data-root, or leave {suite} out of "
            "--tasks"
        ) from error
    return {
        str(config): [(f"dataset {name} row {n}", row) for n, row in enumerate(rows, start=1)]
        for config, rows in loaded.items()
    }
