"""The results of a trajectory: its recall matrix, the paper's metrics, its record on disk.

Imports no torch, so results can be read where torch is not installed.
"""

from holdfast.results.capability import CapabilityRow, read_capability
from holdfast.results.matrix import Entry, RecallMatrix
from holdfast.results.metrics import (
    METRICS,
    box_emission,
    diagonal,
    final,
    forget,
    forward_transfer,
    half_life,
    retention_by_age,
    summarise,
    window,
)
from holdfast.results.record import Description, RunRecord

__all__ = [
    "METRICS",
    "CapabilityRow",
    "Description",
    "Entry",
    "RecallMatrix",
    "RunRecord",
    "box_emission",
    "diagonal",
    "final",
    "forget",
    "forward_transfer",
    "half_life",
    "read_capability",
    "retention_by_age",
    "summarise",
    "window",
]
