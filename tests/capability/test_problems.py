"""Problems from published files, damaged ones too, and the worked examples before them."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from holdfast.capability import problems
from holdfast.capability.problems import LANGUAGES, Errors, gsm8k, math, mgsm, mmlu, mmlu_redux
from holdfast.capability.prompts import few_shot
from holdfast.capability.run import spread
from holdfast.capability.suites import HarnessSuite
from holdfast.core.errors import HoldfastError
from tests.refused import line_of


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def lines(*rows: dict[str, str]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


HENS = {"question": "How many hens?", "answer": "It is 2 * 600 = 1,200.\n#### 1,200"}
COLD = {"question": "How cold?", "answer": "It is 7 - 10 = -3.\n#### -3"}
CUT = {"problem": "Halve $x$.", "solution": r"\boxed{x"}


def test_gsm8k_takes_the_number_behind_the_mark(tmp_path: Path) -> None:
    write(tmp_path / "gsm8k/test.jsonl", lines(HENS, COLD))
    assert [(item.id, item.prompt, item.target) for item in gsm8k(tmp_path)] == [
        ("gsm8k/1", "How many hens?", "1200"),
        ("gsm8k/2", "How cold?", "-3"),
    ]


def test_math_takes_the_last_box_of_the_solution_in_both_layouts(tmp_path: Path) -> None:
    solution = r"Not \boxed{x}, but $\boxed{\frac{x}{2}}$."
    row = {"problem": "Halve $x$.", "solution": solution, "level": "Level 1"}
    tree = tmp_path / "math/MATH/test"
    for name in ("10.json", "9.json"):
        write(tree / "algebra" / name, json.dumps(row | {"type": "Algebra"}))
    (ninth, tenth) = math(tmp_path)
    assert (ninth.id, tenth.id) == ("math/test/algebra/9.json", "math/test/algebra/10.json")
    assert (ninth.group, ninth.target) == ("Algebra", r"\frac{x}{2}")
    split = row | {"subject": "Precalculus", "unique_id": "test/precalculus/3.json"}
    write(tmp_path / "math/math_splits/test.jsonl", lines(split))
    (only,) = math(tmp_path)
    assert (only.id, only.group) == ("math/test/precalculus/3.json", "Precalculus")


def test_mgsm_reads_every_language_that_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "capability/mgsm"
    write(folder / "mgsm_de.tsv", '"Wie viele?" fragt Anna.\t2,125\nWie kalt?\t-3\n')
    write(folder / "mgsm_bn.tsv", "কয়টি?\t16\r\n")
    assert [(item.id, item.group, item.target) for item in mgsm(tmp_path)] == [
        ("mgsm/bn/1", "bn", "16"),
        ("mgsm/de/1", "de", "2125"),
        ("mgsm/de/2", "de", "-3"),
    ]
    assert mgsm(tmp_path)[1].prompt == '"Wie viele?" fragt Anna.'


HEADER = ["question", "choices", "answer", "error_type", "source", "correct_answer", "reason"]
SOUP = ["hot", "cold", "None", "a 'mild', one"]


def write_redux(root: Path, *rows: list[Any], subject: str = "cooking") -> Path:
    path = root / "capability" / "mmlu_redux" / "mini_mmlu_fixed_csv" / subject / "test.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])
    return path


def row(
    answer: Any = 0,
    kind: str = "ok",
    corrected: str = "",
    text: str = "How is soup?",
    choices: list[Any] = SOUP,
) -> list[Any]:
    return [text, str(choices), answer, kind, "", corrected, ""]


ROWS = (
    row(2),
    row(0, "wrong_groundtruth", "B"),
    row(0, "wrong_groundtruth", "3"),
    row(1, "wrong_groundtruth", "2.0"),
    row(1, "wrong_groundtruth", "cold"),
    row(0, "multiple_correct_answers", "A, C"),
    row(3, "no_correct_answer"),
    row(1, "ok", "0"),
)


@pytest.mark.parametrize(
    ("errors", "answers"),
    [
        ("drop", {0: "C", 7: "B"}),
        ("keep", {0: "C", 1: "A", 2: "A", 3: "B", 4: "B", 5: "A", 6: "D", 7: "B"}),
        ("correct", {0: "C", 1: "B", 2: "D", 3: "C", 4: "B", 7: "B"}),
    ],
)
def test_bad_items_are_handled_as_asked_and_keep_their_ids(
    tmp_path: Path, errors: Errors, answers: dict[int, str]
) -> None:
    write_redux(tmp_path, *ROWS)
    items = mmlu_redux(tmp_path, errors)
    assert {item.id: item.target for item in items} == {
        f"mmlu_redux/cooking/{number}": letter for number, letter in answers.items()
    }
    labelled = "How is soup?\nA. hot\nB. cold\nC. None\nD. a 'mild', one"
    assert items[0].prompt == labelled and items[0].group == "cooking"


def test_a_mark_at_the_beginning_and_empty_lines_change_nothing(tmp_path: Path) -> None:
    path = write_redux(tmp_path, *ROWS, row(0, text="First line,\nsecond line?"))
    plain = mmlu_redux(tmp_path, "keep")
    assert plain[-1].prompt.startswith("First line,\nsecond line?\nA. hot")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\r\n", b"\n\n") + b"\n")
    assert mmlu_redux(tmp_path, "keep") == plain


@pytest.mark.parametrize(
    "bad",
    [
        row(4),
        row("B"),
        row(choices=["one", "two", "three", 4]),
        ["a call", "print(1)", 0, "ok", "", "", ""],
        ["short"],
    ],
)
def test_a_damaged_row_is_named(tmp_path: Path, bad: list[Any]) -> None:
    write_redux(tmp_path, row(), bad)
    with pytest.raises(HoldfastError, match=r"test\.csv line 3: is no question of mmlu_redux"):
        mmlu_redux(tmp_path, "drop")


def test_a_missing_column_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    path = write_redux(tmp_path, row())
    path.write_text(path.read_text().replace("error_type", "kind"))
    line = line_of(mmlu_redux, tmp_path, "drop")
    assert "test.csv line 2: is no question of mmlu_redux (KeyError: 'error_type'" in line
    line = line_of(mmlu_redux, tmp_path / "elsewhere", "drop")
    assert "mini_mmlu_fixed_csv is not there; give --data-root" in line


def test_the_plain_file_has_no_header_and_none_is_a_choice(tmp_path: Path) -> None:
    path = tmp_path / "mmlu" / "data" / "test" / "odd_things_test.csv"
    write(path, '"Which, if any?",None,NaN,,4,C\nNext?,1,2,3,4,A\n')
    first, second = mmlu(tmp_path)
    assert first.target == "C"
    assert first.prompt == "Which, if any?\nA. None\nB. NaN\nC. \nD. 4"
    assert (second.id, second.group, second.target) == ("mmlu/odd_things/1", "odd_things", "A")
    path.write_text("Next?,1,2,3,4,AB\n")
    assert "line 1: is no question of mmlu" in line_of(mmlu, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gsm8k/test.jsonl", lines(HENS) + "{", "line 2: is damaged"),
        ("gsm8k/test.jsonl", lines({"question": "How?"}), "is no question of gsm8k (KeyError"),
        ("gsm8k/test.jsonl", lines(HENS | {"answer": 18}), "line 1: is no question of gsm8k"),
        ("gsm8k/test.jsonl", lines(HENS | {"question": None}), "is no question of gsm8k"),
        ("gsm8k/test.jsonl", lines(HENS | {"answer": "12"}), 'no "####" before its number'),
        ("gsm8k/test.jsonl", lines(HENS | {"answer": "#### many"}), '"many" is no number'),
        ("math/math_splits/test.jsonl", lines(CUT), "the solution has no complete"),
        ("mgsm/mgsm_en.tsv", "How many? 3\n", "line 1: is no question of mgsm"),
        ("mgsm/mgsm_en.tsv", "How many?\tthree\n", 'the target "three" is no number'),
    ],
)
def test_a_damaged_file_is_named_with_its_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = write(tmp_path / name, text)
    read = {"gsm8k": gsm8k, "math": math, "mgsm": mgsm}[name.partition("/")[0]]
    line = line_of(read, tmp_path)
    assert str(path) in line and message in line


def test_problems_that_are_not_there_are_missed_in_one_line(tmp_path: Path) -> None:
    for read, place in [(gsm8k, "gsm8k/test.jsonl"), (math, "math_splits"), (mgsm, "mgsm")]:
        with pytest.raises(HoldfastError, match=place):
            read(tmp_path)


def test_the_hub_gives_the_same_items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The `datasets` library is stood in for: what was asked of it, and rows by configuration."""
    calls: list[tuple[str, str | None, str]] = []
    choices = {"question": "How?", "choices": SOUP}
    rows: dict[str, list[dict[str, Any]]] = {
        "openai/gsm8k": [HENS, COLD],
        "HuggingFaceH4/MATH-500": [{"problem": "p", "solution": r"\boxed{1}", "unique_id": "u"}],
        "jbross-ibm-research/mgsm": [{"question": "How many?", "answer_number": 1200}],
        "edinburgh-dair/mmlu-redux-2.0": [
            dict(zip(HEADER, row, strict=True)) | {"choices": SOUP} for row in ROWS
        ],
        "cais/mmlu": [
            choices | {"subject": subject, "answer": answer}
            for subject, answer in (("art", 0), ("law", 3), ("art", 2))
        ],
    }

    def load_dataset(name: str, config: str | None, split: str) -> list[dict[str, Any]]:
        calls.append((name, config, split))
        return rows[name]

    library = SimpleNamespace(
        load_dataset=load_dataset, get_dataset_config_names=lambda name: ["cooking"]
    )
    monkeypatch.setattr(problems, "library", lambda: library)
    assert [item.target for item in gsm8k(None)] == ["1200", "-3"]
    assert [item.id for item in math(None)] == ["math/u"]
    items = mgsm(None)
    assert [item.id for item in items] == [f"mgsm/{language}/1" for language in LANGUAGES]
    assert {item.target for item in items} == {"1200"}
    write_redux(tmp_path, *ROWS)
    for errors in get_args(Errors):
        assert mmlu_redux(None, errors) == mmlu_redux(tmp_path, errors)
    assert [(item.id, item.group, item.target) for item in mmlu(None)] == [
        ("mmlu/art/0", "art", "A"),
        ("mmlu/art/1", "art", "C"),
        ("mmlu/law/0", "law", "D"),
    ]
    configs = ["main", None, *LANGUAGES, "cooking", "cooking", "cooking", "all"]
    assert [config for _, config, _ in calls] == configs
    assert {split for _, _, split in calls} == {"test"}


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: Any, **__: Any) -> None:
        raise ValueError("no such\ndataset")

    monkeypatch.setattr(problems, "library", lambda: SimpleNamespace(load_dataset=load_dataset))
    line = line_of(gsm8k, None)
    assert "openai/gsm8k cannot be " in line and "no such dataset" in line
    assert "--data-root" in line


def test_every_worked_example_calculates_right() -> None:
    suites = [("gsm8k", "en"), ("math", "en"), *(("mgsm", language) for language in LANGUAGES)]
    for suite, language in suites:
        examples = few_shot(suite, language).examples
        assert len(examples) == 4
        for left, right in re.findall(r"(\d+(?: [-+*/] \d+)+) = (\d+)", " ".join(examples)):
            assert eval(left) == int(right), left  # noqa: S307 - digits and operators only


def test_a_prompt_keeps_the_last_examples_and_ends_before_the_answer() -> None:
    german = few_shot("mgsm", "de")
    whole = german.prompt("Was soll {x} und {answer}?", 4)
    assert whole.startswith(german.examples[0])
    assert whole.endswith("\n\nFrage: Was soll {x} und {answer}?\nAntwort Schritt für Schritt:")
    assert whole.count(german.stop) == 4 and german.stop == "\nFrage:"
    assert german.prompt("Was?", 1).startswith(german.examples[3])
    assert german.prompt("Was?", 0) == "Frage: Was?\nAntwort Schritt für Schritt:"
    assert few_shot("mmlu_redux").prompt("How is soup?\nA. hot\nB. cold\nC. old\nD. odd", 2) == (
        "Question: Which of these instruments shows how warm the air is?\n"
        "A. a compass\nB. a thermometer\nC. a ruler\nD. a stopwatch\nAnswer: B\n\n"
        "Question: What does a tree take in through its roots?\n"
        "A. light\nB. sound\nC. wind\nD. water\nAnswer: D\n\n"
        "Question: How is soup?\nA. hot\nB. cold\nC. old\nD. odd\nAnswer:"
    )


def test_a_language_without_examples_is_refused(tmp_path: Path) -> None:
    for language in ("en", "tlh"):
        write(tmp_path / f"mgsm/mgsm_{language}.tsv", "How many?\t3\n")
    with pytest.raises(HoldfastError, match='the language "tlh", but in bn, de, en'):
        HarnessSuite("mgsm").items(tmp_path)


def test_the_published_files_are_read_whole(real_data: Path) -> None:
    whole = mmlu_redux(real_data, "keep")
    clean = mmlu_redux(real_data, "drop")
    corrected = mmlu_redux(real_data, "correct")
    assert (len(whole), len(clean)) == (2400, 2159)
    assert len(clean) < len(corrected) < len(whole)
    assert len({item.id for item in whole}) == 2400 and len({item.group for item in whole}) == 24
    plain = mmlu(real_data)
    assert (len(plain), len({item.group for item in plain})) == (14042, 57)
    assert sum(len(re.findall(r"\n[A-D]\. None(?=\n|$)", item.prompt)) for item in plain) == 10
    assert len(gsm8k(real_data)) == 1319 and len(math(real_data)) == 500
    assert Counter(item.group for item in mgsm(real_data)) == dict.fromkeys(LANGUAGES, 250)
    limited = spread(mgsm(real_data), 40)
    assert sorted(Counter(item.group for item in limited).values()) == [3] * 4 + [4] * 7
    # The translations of one problem have one answer, in whatever way it is written.
    targets = {item.id: item.target for item in mgsm(real_data)}
    english = {name: target for name, target in targets.items() if "/en/" in name}
    assert "2125" in english.values()
    for name, target in english.items():
        number = name.rpartition("/")[2]
        assert all(targets[f"mgsm/{language}/{number}"] == target for language in LANGUAGES)
