"""Ask a model the questions of some suites, each answer kept as soon as it is known."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.capability.model import Model
from holdfast.capability.outcome import Item, Progress, Sample, Suite
from holdfast.capability.store import Store, settings_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import alone

# A bar for the time of one suite, by its name.
Showing = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Question:
    """A suite, and the items of it that are asked."""

    suite: Suite
    items: Sequence[Item]


def questions(
    suites: Mapping[str, Suite], names: Sequence[str], data_root: Path | None, limit: int | None
) -> list[Question]:
    """Read the items of the suites that are named, of each ``limit`` at most, None for all.

    Raises HoldfastError: no name at all, an unknown one (the nearest one is told), files that are
    not there, hold no item, or call two items alike.
    """
    if not names:
        raise HoldfastError(f"--tasks names no suite; known are {', '.join(suites)}")
    for name in names:
        if name not in suites:
            nearest = difflib.get_close_matches(name, suites, n=1, cutoff=0.0)[0]
            raise HoldfastError(
                f'unknown task "{name}"; did you mean {nearest}? known are {", ".join(suites)}'
            )
    if limit is not None and limit < 1:
        raise HoldfastError(f"--limit {limit} leaves nothing to ask; give at least 1")
    if data_root is not None and not data_root.is_dir():
        raise HoldfastError(f"--data-root {data_root}: is no folder; give the one with the files")
    chosen = [suites[name] for name in dict.fromkeys(names)]
    return [Question(suite, _items(suite, data_root, limit)) for suite in chosen]


def _items(suite: Suite, data_root: Path | None, limit: int | None) -> list[Item]:
    items = suite.items(data_root, limit)
    if not items:
        raise HoldfastError(
            f"{suite.name}: its files hold no item; restore them, or leave {suite.name} out of "
            "--tasks"
        )
    # Answers are kept by the ids, so that two items would share one answer.
    name, count = Counter(item.id for item in items).most_common(1)[0]
    if count > 1:
        raise HoldfastError(
            f"{suite.name}: {count} items are called {name}; leave one of their files away, or "
            "restore the published ones"
        )
    return items


def measure(model: Model, asked: Sequence[Question], showing: Showing) -> None:
    """Answer what is not answered yet and write the scores; what is done costs nothing.

    A process killed at any instant loses the answers of one batch; the same call goes on.
    Raises HoldfastError, before anything is asked, when results with other settings are there.
    """
    store = Store(model.directory)
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
    with alone(model.directory):
        for question in open_:
            name = question.suite.name
            # Another process may have asked here while the model was loading.
            if store.finished(name, settings[name]):
                continue
            with showing(name) as progress:
                _answer(store, question, settings[name], backbone, progress)


def _answer(
    store: Store, question: Question, settings: dict[str, Any], backbone: Any, progress: Progress
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
