"""What else a learner can do, measured while it learns; it changes no number of the run."""

from __future__ import annotations

from pathlib import Path

from holdfast.evaluation.text import bits_per_byte, everyday_passages, lengths, settings
from holdfast.learning.learner import Learner
from holdfast.results.capability import asked, boundary, text_score, write_result


def measure_text(learner: Learner, trajectory: Path, after_task: int, model: str) -> float:
    """Bits per byte of the text that comes along; written to ``capability/after_<T>/text.json``.

    after_task: T; model: what tells this model from others. What ``holdfast capability`` would
    ask and write is the same, so it finds this done.
    """
    passages = everyday_passages()
    found = lengths(learner.backbone, [passage.text for passage in passages])
    items: list[tuple[str, str, str, dict[str, str]]] = [
        (passage.id, passage.text, "", {}) for passage in passages
    ]
    told = asked(model, items, settings())
    value = bits_per_byte(found)
    write_result(boundary(trajectory, after_task), "text", told, text_score(len(found), value))
    return value
