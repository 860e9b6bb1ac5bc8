"""A suite's items, a model's samples, and the counts that make a score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.results.capability import Score, text_score

# One of a suite's settings, so that results with differently opened prompts do not mix.
OPENING = {"opening": "the replay token where it was trained"}


@dataclass(frozen=True)
class Problem:
    """One question of a suite, as in its files.

    id: unique in its suite and the same in every run, such as mgsm/bn/17; group: a language or a
    subject, "" if the suite has none; prompt: the question alone; target: the right answer;
    details: further JSON values that the suite needs, such as the choices.
    """

    id: str
    group: str
    prompt: str
    target: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One answer, stored for audit as one line of JSON.

    id, group: the item's; prompt: the text that the model read, without the replay token, or the
    beginning of a text suite's; output: the generated text, "" if likelihoods decide; extracted:
    the answer found, or None; target: the right answer; details: JSON values, such as the
    log-probability of each letter.
    """

    id: str
    group: str
    prompt: str
    output: str
    extracted: str | None
    target: str
    correct: bool
    details: dict[str, Any] = field(default_factory=dict)


def score_of(samples: Sequence[Sample]) -> Score:
    """The score of one or more samples; those whose details hold ``bits`` are scored as text."""
    if "bits" in samples[0].details:
        length = sum(sample.details["bytes"] for sample in samples)
        return text_score(len(samples), sum(sample.details["bits"] for sample in samples) / length)
    items = Counter(sample.group for sample in samples)
    correct = Counter(sample.group for sample in samples if sample.correct)
    extracted = sum(sample.extracted is not None for sample in samples)
    return Score(
        items=len(samples),
        answered=sum(bool(sample.output) or sample.extracted is not None for sample in samples),
        extracted=extracted,
        failed=len(samples) - extracted,
        correct=correct.total(),
        by_group={group: {"items": n, "correct": correct[group]} for group, n in items.items()},
    )


def spread(items: Sequence[Problem], limit: int | None) -> list[Problem]:
    """Pick ``limit`` items (None: all), the first of each group in turn; their order is kept."""
    turns: Counter[str] = Counter()
    ranked = []
    for place, item in enumerate(items):
        turns[item.group] += 1
        ranked.append((turns[item.group], place))
    return [items[place] for place in sorted(place for _, place in sorted(ranked)[:limit])]
