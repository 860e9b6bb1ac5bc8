"""What a trajectory achieved: its recall matrix, the paper's metrics, its record on disk.

Imports no torch, so that analysis and reports read results anywhere.
"""

from holdfast.results.matrix import Recall, RecallMatrix
from holdfast.results.metrics import (
    diagonal,
    final,
    forget,
    forward_transfer,
    half_life,
    retention_by_age,
    summarise,
    window,
)
from holdfast.results.record import RunRecord

__all__ = [
    "Recall",
    "RecallMatrix",
    "RunRecord",
    "diagonal",
    "final",
    "forget",
    "forward_transfer",
    "half_life",
    "retention_by_age",
    "summarise",
    "window",
]
