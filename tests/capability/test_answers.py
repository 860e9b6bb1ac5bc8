"""Answers found in generated text and compared with targets, against a table checked by hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.capability.answers import Checker, Kind, extract, last_box, numbers
from holdfast.core.errors import HoldfastError

NUMBER: Kind = "number"
EXPRESSION: Kind = "expression"

# text, kind, language, what is extracted, target, whether it is right
Case = tuple[str, Kind, str, str | None, str, bool]
CASES: list[Case] = [
    # The last number, whatever stands around it.
    ("She has 3 + 4 = 7 left. The answer is 7.", NUMBER, "en", "7", "7", True),
    ("It takes 18cm.", NUMBER, "en", "18", "18", True),
    ("#### 42", NUMBER, "en", "42", "42", True),
    (r"The answer is \$18.00.", NUMBER, "en", "18.00", "18", True),
    ("€ 18,50", NUMBER, "de", "18.50", "18.5", True),
    (r"It grew by 40\%.", NUMBER, "en", "40", "40", True),
    ("The area is 25 km2", NUMBER, "en", "25", "25", True),
    ("The area is 25 m^2.", NUMBER, "en", "25", "25", True),
    ("The volume is 30 cm^{3}", NUMBER, "en", "30", "30", True),
    ("He arrives with 0.5 litres", NUMBER, "en", "0.5", "1/2", True),
    ("Only .5 is left", NUMBER, "en", "0.5", "0.5", True),
    ("It has 007 on it", NUMBER, "en", "7", "7", True),
    # No answer.
    ("", NUMBER, "en", None, "7", False),
    ("The answer is seven.", NUMBER, "en", None, "7", False),
    ("The area grows with x^2", NUMBER, "en", None, "2", False),
    # Thousands.
    ("That is $1,234.50", NUMBER, "en", "1234.50", "1234.5", True),
    ("the pages 3,5", NUMBER, "en", "5", "5", True),
    ("about 1.234 of them", NUMBER, "en", "1.234", "1234", False),
    ("Das sind 1,234.", NUMBER, "de", "1.234", "1234", False),
    ("Das sind 1.234,50 Euro.", NUMBER, "de", "1234.50", "1234.5", True),
    ("Das sind 5.50 Euro.", NUMBER, "de", "5.50", "5.5", True),
    ("Das sind 12.345.678 Euro.", NUMBER, "en", "12345678", "12345678", True),
    ("Son 114.200 euros", NUMBER, "es", "114200", "114200", True),
    ("Cela fait 12\u202f345,5 euros.", NUMBER, "fr", "12345.5", "12345.5", True),
    ("Ответ: 276\u00a0000", NUMBER, "ru", "276000", "276000", True),
    ("Ответ: 2,5 литра", NUMBER, "ru", "2.5", "5/2", True),
    ("rows of 5 100", NUMBER, "en", "100", "100", True),
    ("That is 12\u2009345.", NUMBER, "en", "12345", "12345", True),
    ("That is 1’234.", NUMBER, "en", "1234", "1234", True),
    (r"That is $10{,}080$.", NUMBER, "en", "10080", "10080", True),
    (r"That is $10,\!080$.", NUMBER, "en", "10080", "10080", True),
    (r"That is $10\,080$.", NUMBER, "en", "10080", "10080", True),
    ("That is 12,34,567 rupees.", NUMBER, "en", "1234567", "1234567", True),
    # Digits of other scripts.
    ("উত্তর হল ১২,৩৪,৫৬৭।", NUMBER, "bn", "1234567", "1234567", True),
    ("তাই 16টি ডিম", NUMBER, "bn", "16", "16", True),
    ("คำตอบคือ ๑,๒๓๔", NUMBER, "th", "1234", "1234", True),
    ("الجواب ١٬٢٣٤٫٥", NUMBER, "ar", "1234.5", "1234.5", True),
    ("答えは１，２３４です。", NUMBER, "ja", "1234", "1234", True),
    ("先有3个，400个不要了", NUMBER, "zh", "400", "400", True),
    # Signs.
    ("The answer is \u201310.", NUMBER, "en", "-10", "-10", True),
    ("答案是－１０", NUMBER, "zh", "-10", "-10", True),
    ("She lost money: -$1,200", NUMBER, "en", "-1200", "-1200", True),
    ("x = - 3", NUMBER, "en", "-3", "-3", True),
    ("so 10-3", NUMBER, "en", "3", "-3", False),
    ("so 10 - 3", NUMBER, "en", "3", "3", True),
    ("so x-3", NUMBER, "en", "3", "3", True),
    ("on pages 5–10", NUMBER, "en", "10", "10", True),
    ("\n- 5 apples", NUMBER, "en", "5", "5", True),
    # Fractions.
    ("He ate 3/4", NUMBER, "en", "3/4", "0.75", True),
    ("It takes 2 1/2 hours", NUMBER, "en", "5/2", "2.5", True),
    ("It takes 2½ hours", NUMBER, "en", "5/2", "2.5", True),
    (r"He ate $\frac{3}{4}$ of it", NUMBER, "en", "3/4", "3/4", True),
    (r"He ate $\dfrac34$", NUMBER, "en", "3/4", "3/4", True),
    (r"Then $-\frac{3}{4}$", NUMBER, "en", "-3/4", "-0.75", True),
    (r"Then $1\frac{4}{5}$", NUMBER, "en", "9/5", "1.8", True),
    ("on 12/05/2024", NUMBER, "en", "2024", "2024", True),
    ("it is 5/0", NUMBER, "en", "0", "5", False),
    # Boxes.
    (r"so \boxed{18} of 20", NUMBER, "en", "18", "18", True),
    (r"first \boxed{5}, then \boxed{7}", NUMBER, "en", "7", "7", True),
    (r"first \boxed{5}, then \boxed{7", NUMBER, "en", "5", "5", True),
    (r"\boxed{} of 20", NUMBER, "en", "20", "20", True),
    (r"\boxed{\$1{,}234.00}", NUMBER, "en", "1234.00", "1234", True),
    (r"\boxed{18 \text{ eggs}}", NUMBER, "en", "18", "18", True),
    (r"\boxed{x = 18}", NUMBER, "en", "18", "18", True),
    (r"\boxed{20 - 2}", NUMBER, "en", "20 - 2", "18", True),
    (r"\boxed{Xyz}, 18", NUMBER, "en", None, "18", False),
    (r"\boxed{\boxed{5}}", NUMBER, "en", "5", "5", True),
    (r"\fbox{18}", NUMBER, "en", "18", "18", True),
    (r"\boxed 7.", NUMBER, "en", "7", "7", True),
    (r"\boxed{1.234}", NUMBER, "de", "1234", "1234", True),
    (r"\boxed{45°}", NUMBER, "en", "45", "45", True),
    (r"\boxed{12 \text{ cm}^2}", NUMBER, "en", "12", "12", True),
    (r"\boxed{\sqrt{16}}", NUMBER, "en", r"\sqrt{16}", "4", True),
    (r"\boxed{\sqrt{16}}", NUMBER, "en", r"\sqrt{16}", "16", False),
    (r"\boxed{2^3}", NUMBER, "en", "2^3", "8", True),
    (r"\boxed{2^{3}}", NUMBER, "en", "2^{3}", "2", False),
    # Expressions.
    (r"$\boxed{\frac{1}{2}}$", EXPRESSION, "en", r"\frac{1}{2}", "0.5", True),
    (r"$\boxed{\frac 34}$", EXPRESSION, "en", r"\frac 34", r"\frac{3}{4}", True),
    (r"$\boxed{0.333}$", EXPRESSION, "en", "0.333", r"\frac{1}{3}", False),
    (r"$\boxed{\sqrt{75}}$", EXPRESSION, "en", r"\sqrt{75}", r"5\sqrt{3}", True),
    (r"$\boxed{(x+1)^2}$", EXPRESSION, "en", "(x+1)^2", "x^2+2x+1", True),
    (r"$\boxed{(x+1)^2}$", EXPRESSION, "en", "(x+1)^2", "x^2+1", False),
    (r"$\boxed{90^\circ}$", EXPRESSION, "en", r"90^\circ", "90", True),
    ("$\\boxed{90°}$", EXPRESSION, "en", "90°", r"90^\circ", True),
    ("$\\boxed{5√3}$", EXPRESSION, "en", "5√3", r"5\sqrt{3}", True),
    ("$\\boxed{(-∞, 2]}$", EXPRESSION, "en", "(-∞, 2]", r"(-\infty, 2]", True),
    ("$\\boxed{\uff15}$", EXPRESSION, "en", "\uff15", "5", True),
    (r"$\boxed{12.}$", EXPRESSION, "en", "12.", "12", True),
    (r"$\boxed{12 \text{ cm}}$", EXPRESSION, "en", r"12 \text{ cm}", "12", True),
    (r"$\boxed{x = 5}$", EXPRESSION, "en", "x = 5", "5", True),
    (r"$\boxed{10,\!080}$", EXPRESSION, "en", r"10,\!080", "10080", True),
    (r"$\boxed{7, 3}$", EXPRESSION, "en", "7, 3", "3, 7", True),
    (r"$\boxed{(1, 2)}$", EXPRESSION, "en", "(1, 2)", "(2, 1)", False),
    (r"$\boxed{\left\{ 1, 2 \right\}}$", EXPRESSION, "en", r"\left\{ 1, 2 \right\}", "1,2", True),
    (r"$\boxed{\left\{ x \right.}$ or so", EXPRESSION, "en", r"\left\{ x \right.", "7", False),
    (r"$\boxed{\text{even}}$", EXPRESSION, "en", r"\text{even}", r"\text{even}", True),
    (r"$\boxed{\text{odd}}$", EXPRESSION, "en", r"\text{odd}", r"\text{even}", False),
    (r"the probability is $\frac{7}{36}$.", EXPRESSION, "en", "7/36", r"\frac{7}{36}", True),
    ("so it is 1,200", EXPRESSION, "en", "1200", "1200", True),
    ("it depends", EXPRESSION, "en", None, "1", False),
]


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    with closing(Checker()) as opened:
        yield opened


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_an_answer_is_found_and_checked(checker: Checker, case: Case) -> None:
    text, kind, language, wanted, target, right = case
    answer = extract(text, kind, language)
    assert answer == wanted
    assert checker.correct(answer, target) is right


@given(st.integers(0, 10**9 - 1), st.booleans(), st.sampled_from("০౦๐٠０۰"))
def test_a_number_reads_the_same_in_every_spelling(value: int, minus: bool, zero: str) -> None:
    wanted = ("-" if minus else "") + str(value)
    sign = "\u2212" if minus else ""
    for language, mark in [("en", ","), ("de", "."), ("fr", " "), ("ru", " "), ("de", "'")]:
        grouped = f"{value:,}".replace(",", mark)
        assert numbers(f"is {sign}{grouped}.", language) == [wanted], (language, grouped)
    in_script = "".join(chr(ord(zero) + int(digit)) for digit in str(value))
    assert numbers(f"is {sign}{in_script}.") == [wanted]


@given(st.text(max_size=60))
def test_no_text_breaks_the_extraction(text: str) -> None:
    for kind in (NUMBER, EXPRESSION):
        for language in ("en", "de", "fr"):
            answer = extract(rf"\boxed{{{text}" + text, kind, language)
            assert answer is None or answer == answer.strip()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1" * 5000 + "/3", ["1" * 5000, "3"]),
        ("3/" + "1" * 5000, ["3", "1" * 5000]),
        (r"\frac{" + "1" * 5000 + "}{3}", ["1" * 5000, "3"]),
        ("0" * 5000 + " 1/2", ["0", "1/2"]),
    ],
)
def test_a_model_that_repeats_a_digit_breaks_nothing(text: str, wanted: list[str]) -> None:
    """Python refuses to make an integer of more than 4,300 digits."""
    assert numbers(text) == wanted


def test_numbers_come_in_the_order_of_the_text() -> None:
    assert numbers("1,2,3 and -4; 5,678 + 1/2") == ["1", "2", "3", "-4", "5678", "1/2"]
    assert last_box(r"a \boxedly tale of 12") is None
    assert last_box(r"hence \boxed 12, as claimed") == "12"


def test_the_checker_works_in_a_thread_and_imports_nothing_from_the_directory_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "math_verify.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    with closing(Checker()) as checker, ThreadPoolExecutor() as threads:
        assert threads.submit(checker.correct, "3/6", "0.5").result()


def test_a_comparison_without_end_is_wrong_and_the_next_one_is_made() -> None:
    with closing(Checker(seconds=0.3)) as checker:
        assert not checker.correct("9^{9^{9^{9^{9}}}}", "4")
        assert checker._process is None  # long before math-verify itself gives up
        checker._seconds = 10.0
        assert checker.correct("0.5", "1/2")


def test_without_math_verify_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HoldfastError, match=r'math-verify; pip install "holdfast\[capability\]"'):
        Checker()
