"""The suites by their names."""

from __future__ import annotations

from holdfast.capability.generation import GSM8K, MATH, MGSM
from holdfast.capability.mmlu_files import Errors
from holdfast.capability.mmlu_redux import LetterChoice
from holdfast.capability.outcome import Suite
from holdfast.capability.text import Text


def suites(redux_errors: Errors = "drop") -> dict[str, Suite]:
    """Every suite by its name. redux_errors: what becomes of items that MMLU-Redux marks."""
    letters = LetterChoice("mmlu_redux", redux_errors), LetterChoice("mmlu")
    known: tuple[Suite, ...] = (GSM8K, MATH, MGSM, *letters, Text("text"), Text("corpus"))
    return {suite.name: suite for suite in known}
