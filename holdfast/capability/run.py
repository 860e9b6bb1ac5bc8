"""Measure a model on suites, storing each answer as soon as it is known.

``<suite>.json`` in the model's directory holds the settings before the first answer and the score
after the last; ``<suite>.samples.jsonl`` holds the answers. While the harness asks, its answers are
in ``<suite>.answers.jsonl``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.capability.problems import Errors, Problem, Sample
from holdfast.capability.stored import stored_lines
from holdfast.capability.suites import HarnessSuite
from holdfast.capability.text import Text
from holdfast.core.config import check_same
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.file_checks import refuse_links
from holdfast.core.files import append, lock_directory
from holdfast.core.reporting import NoteReport
from holdfast.learning.recorded import Recorded
from holdfast.model.backbone import Backbone
from holdfast.model.load import load_backbone
from holdfast.results.capability import (
    Score,
    boundary_directory,
    measurement_settings,
    model_after,
    read_result,
    text_score,
    write_result,
)

# Each has a name, settings as JSON values, items, a check of the model before any writing, and
# answers, a sample of each item.
Suite: TypeAlias = HarnessSuite | Text
# Suite name -> context manager of its progress bar.
Showing = Callable[[str], AbstractContextManager[NoteReport]]


@dataclass(frozen=True)
class Model:
    """A model to measure. label: its name; directory: where its results go.

    after_task: how many tasks it has learned; load: returns it, ready for evaluation.
    """

    label: str
    directory: Path
    fingerprint: str
    after_task: int
    load: Callable[[], Backbone]


def plain_model(name: str, directory: Path) -> Model:
    """A backbone by its name. HoldfastError when it cannot be loaded."""
    backbone = load_backbone(Backbone.Config(name=name))
    return Model(name, directory, backbone.fingerprint, 0, lambda: backbone)


def trajectory_model(path: Path, after_task: int | None, directory: Path | None = None) -> Model:
    """A trajectory's model after a task; None is the last one, 0 the unmodified backbone.

    directory: where the results go, None for the trajectory's own.
    Raises HoldfastError when that boundary is missing, or the trajectory is damaged.
    """
    recorded = Recorded.read(path)
    commit = recorded.boundary(after_task)
    task = commit.completed
    model = model_after(recorded.identity, commit.tasks) if task else recorded.fingerprint

    def load() -> Backbone:
        return recorded.learner(commit).backbone if task else recorded.backbone()

    if directory is None:
        directory = boundary_directory(path, task)
        refuse_links(path, ("capability", f"capability/{directory.name}"))
    return Model(str(path), directory, model, task, load)


@dataclass(frozen=True)
class Question:
    """A suite and the items to ask."""

    suite: Suite
    items: Sequence[Problem]


def suites(redux_errors: Errors = "drop") -> dict[str, Suite]:
    """Every suite by its name. redux_errors: how to treat items that MMLU-Redux marks as wrong."""
    asked = HarnessSuite("gsm8k"), HarnessSuite("math"), HarnessSuite("mgsm")
    letters = HarnessSuite("mmlu_redux", redux_errors), HarnessSuite("mmlu")
    all_suites: tuple[Suite, ...] = (*asked, *letters, Text("text"), Text("corpus"))
    return {suite.name: suite for suite in all_suites}


def questions(
    by_name: Mapping[str, Suite], names: Sequence[str], data_root: Path | None, limit: int | None
) -> list[Question]:
    """Read the items of the named suites, at most ``limit`` of each, spread over the groups.

    Raises HoldfastError for no name, an unknown one, and files that are missing, hold no item, or
    give two items the same id.
    """
    if not names:
        raise HoldfastError(f"--tasks names no suite; known are {', '.join(by_name)}")
    for name in names:
        if name not in by_name:
            raise HoldfastError(f'unknown task "{name}"; {did_you_mean(name, by_name)}')
    if limit is not None and limit < 1:
        raise HoldfastError(f"--limit {limit} leaves nothing to ask; give at least 1")
    if data_root is not None and not data_root.is_dir():
        raise HoldfastError(f"--data-root {data_root}: is no folder; give the one with the files")
    chosen = [by_name[name] for name in dict.fromkeys(names)]
    return [Question(suite, spread(_items(suite, data_root), limit)) for suite in chosen]


def _items(suite: Suite, data_root: Path | None) -> list[Problem]:
    items = suite.items(data_root)
    if not items:
        raise HoldfastError(
            f"{suite.name}: its files hold no item; restore them, or leave {suite.name} out of "
            "--tasks"
        )
    # Answers are stored by id, so two items with one id would share an answer.
    name, count = Counter(item.id for item in items).most_common(1)[0]
    if count > 1:
        raise HoldfastError(
            f"{suite.name}: {count} items are called {name}; leave one of their files away, or "
            "restore the published ones"
        )
    return items


def measure(model: Model, questions: Sequence[Question], showing: Showing) -> None:
    """Answer the questions without a stored answer and write the scores.

    A process killed at any instant loses the answers of one batch; the same call continues. Raises
    HoldfastError, before any question is asked, if the directory holds results of other settings.
    """
    place = model.directory
    settings = {
        question.suite.name: measurement_settings(
            model.fingerprint,
            # Results have details of each item in their settings, which are empty now.
            ((item.id, item.prompt, item.target, {}) for item in question.items),
            question.suite.settings,
        )
        for question in questions
    }
    unfinished = [question for question in questions if not _finished(place, question, settings)]
    if not unfinished:
        return
    backbone = model.load()
    for question in unfinished:
        question.suite.check(backbone)
    names = [question.suite.name for question in unfinished]
    parts = [f"{name}.{kind}.jsonl" for name in names for kind in ("samples", "answers")]
    with lock_directory(place, parts=parts):
        for question in unfinished:
            # Another process may have finished this suite while the model was loading.
            if not _finished(place, question, settings):
                with showing(question.suite.name) as progress:
                    _answer(place, question, settings[question.suite.name], backbone, progress)


def _finished(place: Path, question: Question, settings: Mapping[str, Any]) -> bool:
    """Whether the score is stored. HoldfastError for a damaged file, or one of other settings."""
    name = question.suite.name
    record = read_result(place, name)
    if record is not None:
        check_same(place, f"{name}.json", record["settings"], settings[name])
    return record is not None and record["score"] is not None


def _answer(
    place: Path, question: Question, settings: dict[str, Any], backbone: Any, progress: NoteReport
) -> None:
    name = question.suite.name
    path, unsorted = (place / f"{name}.{kind}.jsonl" for kind in ("samples", "answers"))
    if read_result(place, name) is None:
        path.unlink(missing_ok=True)  # the settings of these samples are unknown
        unsorted.unlink(missing_ok=True)
        write_result(place, name, settings, None)
    answers = stored_samples(path)
    unanswered = [item for item in question.items if item.id not in answers]
    done, total = len(question.items) - len(unanswered), len(question.items)
    progress(done, total, "")
    for sample in question.suite.answer(
        backbone, unanswered, unsorted, lambda count: progress(done + count, total, "")
    ):
        append(path, json.dumps(asdict(sample)) + "\n")
        answers[sample.id] = sample
    unsorted.unlink(missing_ok=True)
    write_result(place, name, settings, score_of([answers[item.id] for item in question.items]))


def stored_samples(path: Path) -> dict[str, Sample]:
    """The samples of a file by id; a last line that a killed writer left unfinished is cut off."""
    return {sample.id: sample for sample in stored_lines(path, lambda line: Sample(**line))}


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
