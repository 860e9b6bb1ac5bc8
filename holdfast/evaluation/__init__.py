"""Recall: greedy answers to a stream's questions, verified in one pass or else decoded."""

from holdfast.evaluation.boxed import Match, extract_boxed
from holdfast.evaluation.recall import Recall, RecallCount, Verdict

__all__ = ["Match", "Recall", "RecallCount", "Verdict", "extract_boxed"]
