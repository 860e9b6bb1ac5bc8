"""What a model recalls: greedy answers to the questions of a stream, verified or decoded."""

from holdfast.evaluation.boxed import Match, extract_boxed
from holdfast.evaluation.recall import Recall, RecallCount, Verdict

__all__ = ["Match", "Recall", "RecallCount", "Verdict", "extract_boxed"]
