"""Measure a model on suites, storing each answer as soon as it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.capability.model import Model
from holdfast.capability.outcome import Benchmark, Problem, Progress, Sample
from holdfast.capability.store import SampleStore, settings_of
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.files import lock_directory

# Suite name -> context manager of its progress bar.
Showing = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Question:
    """A suite and the items to ask."""

    suite: Benchmark
    items: Sequence[Problem]


def questions(
    suites: Mapping[str, Benchmark], names: Sequence[str], data_root: Path | None, limit: int | None
) -> list[Question]:
    """Read the items of the named suites, at most ``limit`` of each; None for all.

    Raises HoldfastError for no name, an unknown one (naming the nearest), and files that are
    missing, hold no item, or give two items the same id.
    """
    if not names:
        raise HoldfastError(f"--tasks names no suite; known are {', '.join(suites)}")
    for name in names:
        if name not in suites:
            raise HoldfastError(f'unknown task "{name}"; {did_you_mean(name, suites)}')
    if limit is not None and limit < 1:
        raise HoldfastError(f"--limit {limit} leaves nothing to ask; give at least 1")
    if data_root is not None and not data_root.is_dir():
        raise HoldfastError(f"--data-root {data_root}: is no folder; give the one with the files")
    chosen = [suites[name] for name in dict.fromkeys(names)]
    return [Question(suite, _items(suite, data_root, limit)) for suite in chosen]


def _items(suite: Benchmark, data_root: Path | None, limit: int | None) -> list[Problem]:
    items = suite.items(data_root, limit)
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


def measure(model: Model, asked: Sequence[Question], showing: Showing) -> None:
    """Answer the questions without a stored answer and write the scores.

    A process killed at any instant loses the answers of one batch; the same call continues. When
    all suites are finished, the model is not loaded. Raises HoldfastError, before any question is
    asked, when the directory holds results with other settings.
    """
    store = SampleStore(model.directory)
    settings = {
        one.suite.name: settings_of(model.fingerprint, one.items, one.suite.settings)
        for one in asked
    }
    open_ = [one for one in asked if not store.finished(one.suite.name, settings[one.suite.name])]
    if not open_:
        return
    backbone = model.load()
    for question in open_:
        question.suite.check(backbone)
    names = [one.suite.name for one in open_]
    with lock_directory(model.directory, parts=[f"{name}.samples.jsonl" for name in names]):
        for question in open_:
            name = question.suite.name
            # Another process may have finished this suite while the model was loading.
            if store.finished(name, settings[name]):
                continue
            with showing(name) as progress:
                _answer(store, question, settings[name], backbone, progress)


def _answer(
    store: SampleStore,
    question: Question,
    settings: dict[str, Any],
    backbone: Any,
    progress: Progress,
) -> None:
    name = question.suite.name
    known = store.samples(name)
    rest = [item for item in question.items if item.id not in known]
    before, total = len(question.items) - len(rest), len(question.items)

    def told(done: int, _: int, note: str) -> None:
        progress(before + done, total, note)

    store.begin(name, settings)
    fresh: dict[str, Sample] = {}
    for sample in question.suite.answer(backbone, rest, told):
        store.add(name, sample)
        fresh[sample.id] = sample
    answers = {**known, **fresh}
    store.finish(name, settings, [answers[item.id] for item in question.items])
