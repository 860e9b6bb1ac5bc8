"""Read a study's trajectories and make tables of their results.

Imports no deep-learning library. Values are shares in [0, 1].
"""

from holdfast.analysis.items import (
    Items,
    by_age,
    by_length,
    by_rehearsal,
    item_histories,
    read_items,
    rehearsed_tasks,
    sampled,
)
from holdfast.analysis.study import Study, final_runs, read_study
from holdfast.analysis.tables import Analysis, analyse

__all__ = [
    "Analysis",
    "Items",
    "Study",
    "analyse",
    "by_age",
    "by_length",
    "by_rehearsal",
    "final_runs",
    "item_histories",
    "read_items",
    "read_study",
    "rehearsed_tasks",
    "sampled",
]
