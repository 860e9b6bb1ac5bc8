"""Measure general capability between tasks, without changing the run's other results."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.file_checks import refuse_links
from holdfast.core.processes import is_rank_zero
from holdfast.evaluation.text import bits_per_byte, everyday_passages, lengths, settings
from holdfast.learning.learner import Learner
from holdfast.results.capability import (
    boundary_directory,
    measurement_settings,
    text_score,
    write_result,
)


def measure_text(learner: Learner, trajectory: Path, after_task: int, model: str) -> float:
    """Measure bits per byte of the packaged text; write it to ``capability/after_<T>/text.json``.

    after_task: T; model: a hash that identifies this model. ``holdfast capability`` would write
    the same file, so it finds this suite finished.
    """
    passages = everyday_passages()
    measured = lengths(learner.backbone, [passage.text for passage in passages])
    items: list[tuple[str, str, str, dict[str, str]]] = [
        (passage.id, passage.text, "", {}) for passage in passages
    ]
    question = measurement_settings(model, items, settings())
    value = bits_per_byte(measured)
    if is_rank_zero():
        place = boundary_directory(trajectory, after_task)
        refuse_links(trajectory, ("capability", f"capability/{place.name}"))
        write_result(place, "text", question, text_score(len(measured), value))
    return value
