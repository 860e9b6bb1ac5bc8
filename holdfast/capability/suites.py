"""The suites by their names."""

from __future__ import annotations

from holdfast.capability.generation import GSM8K, MATH, MGSM
from holdfast.capability.mmlu_files import Errors
from holdfast.capability.mmlu_redux import LetterChoice
from holdfast.capability.outcome import Benchmark
from holdfast.capability.text import Text


def suites(redux_errors: Errors = "drop") -> dict[str, Benchmark]:
    """Every suite by its name. redux_errors: how to treat items that MMLU-Redux marks as wrong."""
    letters = LetterChoice("mmlu_redux", redux_errors), LetterChoice("mmlu")
    known: tuple[Benchmark, ...] = (GSM8K, MATH, MGSM, *letters, Text("text"), Text("corpus"))
    return {suite.name: suite for suite in known}
