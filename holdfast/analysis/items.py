"""Recall by item, and which learned items are in the samples that the previous model wrote."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.core.config import build
from holdfast.core.errors import HoldfastError
from holdfast.results import RunRecord
from holdfast.results.items import (
    SAMPLES_FOLDER,
    VERDICTS_FOLDER,
    read_rows,
    read_samples,
    sampled_tasks,
)
from holdfast.results.record import commit_file, read_commit
from holdfast.streams import Item, Stream, StreamConfig, Template, load_stream

_AGES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_KINDS = ("right", "chimeras", "other")


@dataclass(frozen=True)
class Items:
    """The items of one run.

    horizon: tasks learned; rows: by row and task, whether each item was recalled; samples: by
    task, the texts that the previous model wrote before it, empty if none were kept.
    """

    stream: Stream
    template: Template
    horizon: int
    rows: Mapping[int, Mapping[int, list[bool]]]
    samples: Mapping[int, list[str]]

    def to_frame(self) -> pd.DataFrame:
        """One row per observation: ``after_task``, ``on_task``, ``item`` (from 1, in its task),
        ``age``, ``recalled``, ``question``, ``answer``, ``length`` (characters of both) and
        ``rehearsed`` (samples up to after_task that ask its question; <NA> if none were kept).
        """
        rows = [
            (after, on, number, after - on, recalled, item.question, item.answer)
            for after, row in self.rows.items()
            for on, verdicts in row.items()
            for number, (item, recalled) in enumerate(
                zip(self.stream.tasks[on - 1].items, verdicts, strict=True), start=1
            )
        ]
        columns = ["after_task", "on_task", "item", "age", "recalled", "question", "answer"]
        frame = pd.DataFrame(rows, columns=columns)
        frame["length"] = frame["question"].str.len() + frame["answer"].str.len()
        counted = [pd.NA] * len(rows)
        if self.samples:
            so_far = {task: counts.cumsum(axis=1) for task, counts in self.rehearsals().items()}
            counted = [so_far[on][item - 1, after] for after, on, item, *_ in rows]
        return frame.assign(rehearsed=pd.array(counted, dtype="Int64"))

    def rehearsals(self) -> dict[int, NDArray[np.int64]]:
        """By task, how many samples drawn before task t ask each item: [items, t = 0..horizon]."""
        places: dict[str, list[tuple[int, int]]] = {}
        counts: dict[int, NDArray[np.int64]] = {}
        for number, task in enumerate(self.stream.tasks[: self.horizon], start=1):
            counts[number] = np.zeros((len(task.items), self.horizon + 1), dtype=np.int64)
            for place, item in enumerate(task.items):
                places.setdefault(self.question(item), []).append((number, place))
        for before, texts in self.samples.items():
            for text in texts:
                for number, place in places.get(self.template.asked(text), ()):
                    counts[number][place, before] += 1
        return counts

    def question(self, item: Item) -> str:
        """The item's question in the form that samples have."""
        return self.template.asked(self.template.prompt(item))


def read_items(
    directory: Path | str, horizon: int | None = None, *, stream: Stream | None = None
) -> Items:
    """Read a run's stream and, as far as they were kept, its verdicts by item and its samples.

    horizon: read the run as it was after so many tasks; None for all that it learned; stream: the
    one that it learned, if that was given in Python or has moved; None for that of its settings.
    Raises HoldfastError if neither was kept, the stream is missing or not as it was learned, or the
    run dropped overlong items.
    """
    record = RunRecord.open(directory)
    learned = record.horizon if horizon is None else min(horizon, record.horizon)
    sampled_before = sampled_tasks(record.path, learned)
    without = sampled_before and not (record.path / VERDICTS_FOLDER).is_dir()
    rows = {} if without else read_rows(record.path, learned)
    config = record.description.config
    if stream is None:
        stream = load_stream(build(StreamConfig, config["stream"], source="stream"))
    fingerprints = [task.fingerprint for task in stream.tasks[:learned]]
    # Other records, such as made ones, have no commit.
    known = read_commit(record.path)["tasks"] if commit_file(record.path).exists() else fingerprints
    if fingerprints != known[:learned]:
        why = "put back the stream that was learned"
        if config["template"].get("overlong") == "drop":
            why = (
                "template.overlong: drop left some items out, and which is known only with the "
                "model's tokenizer; learn a stream without them"
            )
        raise HoldfastError(
            f"{record.path}: stream {stream.name} does not have the tasks that were learned; {why}"
        )
    for row in rows.values():
        for task, verdicts in row.items():
            if task > len(stream.tasks) or len(stream.tasks[task - 1].items) != len(verdicts):
                raise HoldfastError(
                    f"{record.path}: task {task} has {len(verdicts)} verdicts, which are not those "
                    "of its items; restore its folder items"
                )
    template = Template(build(Template.Config, config["template"], source="template"))
    samples = {task: read_samples(record.path, task) for task in sampled_before}
    return Items(stream, template, learned, rows, samples)


def by_age(frame: pd.DataFrame) -> pd.DataFrame:
    """Recall in all rows: ``age`` (a range), ``recalled`` (share), ``observed`` (how many)."""
    return _shares(frame, _ranges(frame["age"]))


def by_length(frame: pd.DataFrame) -> pd.DataFrame:
    """Recall in the last row, by thirds of the length of question and answer in characters.

    Empty if all are equally long.
    """
    last = _last_row(frame)
    if last["length"].nunique() == 1:
        return pd.DataFrame(columns=["length", "recalled", "observed"])
    groups = pd.qcut(last["length"], 3, duplicates="drop")
    names = [_range(int(cut.left) + 1, int(cut.right)) for cut in groups.cat.categories]
    return _shares(last, groups.cat.rename_categories(names))


def by_rehearsal(frame: pd.DataFrame) -> pd.DataFrame:
    """Recall in the last row, by how many samples asked the item; empty without samples."""
    last = _last_row(frame).dropna(subset="rehearsed")
    if last.empty:
        return pd.DataFrame(columns=["rehearsed", "recalled", "observed"])
    return _shares(last, _ranges(last["rehearsed"].astype(int)))


def _last_row(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["after_task"] == frame["after_task"].max()]


def _ranges(values: pd.Series) -> pd.Series:
    """The range that each value lies in: 0, 1, 2-3, 4-7 and so on up to the highest value."""
    highest = int(values.max())
    edges = [*(edge for edge in _AGES if edge <= highest), highest + 1]
    names = [_range(low, high - 1) for low, high in itertools.pairwise(edges)]
    return pd.cut(values, edges, right=False, labels=names)


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _shares(frame: pd.DataFrame, groups: pd.Series) -> pd.DataFrame:
    recalled = frame.groupby(groups, observed=True)["recalled"]
    return recalled.agg(recalled="mean", observed="size").reset_index()


def item_histories(frame: pd.DataFrame) -> pd.DataFrame:
    """Each item's life: ``on_task``, ``item``, ``question``, ``answer``, ``life``, ``lost_after``.

    life: a 1 or a 0 for each row that asked it; lost_after: the first row after its last recall,
    <NA> if the last row recalls it or none does. Items lost at the youngest age come first.
    """
    keys = ["on_task", "item", "question", "answer"]
    rows = []
    for key, part in frame.sort_values("after_task").groupby(keys, sort=True):
        life = "".join("01"[recalled] for recalled in part["recalled"])
        last = life.rfind("1")
        lost = 0 <= last < len(life) - 1
        rows.append((*key, life, part["after_task"].iloc[last + 1] if lost else pd.NA))
    table = pd.DataFrame(rows, columns=[*keys, "life", "lost_after"]).astype(
        {"lost_after": "Int64"}
    )
    order = (table["lost_after"] - table["on_task"]).sort_values(kind="stable").index
    return table.loc[order].reset_index(drop=True)


class _LearnedItems:
    """The learned items by question; of a question taught again, the latest answer counts."""

    def __init__(self, items: Items) -> None:
        self._by_question: dict[str, list[tuple[int, str]]] = {}
        for number, task in enumerate(items.stream.tasks[: items.horizon], start=1):
            for item in task.items:
                taught = (number, items.template.text(item))
                self._by_question.setdefault(items.question(item), []).append(taught)
        self._first = sorted(taught[0][0] for taught in self._by_question.values())

    def before(self, task: int, question: str) -> tuple[int, str] | None:
        """The last task before ``task`` that taught the question, and the item's whole text."""
        taught = reversed(self._by_question.get(question, []))
        return next((lesson for lesson in taught if lesson[0] < task), None)

    def count(self, task: int) -> int:
        """How many questions were learned before ``task``."""
        return bisect_left(self._first, task)


def sampled(items: Items) -> pd.DataFrame:
    """What the samples drawn before each task contain.

    Gives ``task``, ``samples``, ``right`` (share that is an item learned before, word for word),
    ``chimeras`` (share that asks a learned question and answers otherwise), ``other`` (share that
    asks no learned question), ``distinct`` (share of the learned questions that are asked), and
    ``newest`` (share of the right samples that are of the latest quarter of the learned tasks).
    """
    facts = _LearnedItems(items)
    rows = []
    for task, texts in items.samples.items():
        if not texts:
            continue
        kinds: Counter[str] = Counter()
        questions, newest = set(), []
        for text in texts:
            question = items.template.asked(text)
            learned = facts.before(task, question)
            if learned is None:
                kinds["other"] += 1
                continue
            questions.add(question)
            number, whole = learned
            right = text.strip().startswith(whole)
            kinds["right" if right else "chimeras"] += 1
            if right:
                newest.append(task - 1 - number < (task - 1) / 4)
        learnable = facts.count(task)
        shares = [kinds[kind] / len(texts) for kind in _KINDS]
        distinct = len(questions) / learnable if learnable else math.nan
        rows.append((task, len(texts), *shares, distinct, fmean(newest) if newest else math.nan))
    return pd.DataFrame(rows, columns=["task", "samples", *_KINDS, "distinct", "newest"])


def rehearsed_tasks(items: Items) -> pd.DataFrame:
    """The share of the samples drawn before each task that asks each earlier task.

    Gives ``task`` (before which they were drawn), ``on_task`` and ``share``.
    """
    facts = _LearnedItems(items)
    rows = []
    for task, texts in items.samples.items():
        matches = [facts.before(task, items.template.asked(text)) for text in texts]
        counts = Counter(match[0] for match in matches if match is not None)
        rows += [(task, on, counts[on] / len(texts)) for on in range(1, task) if texts]
    return pd.DataFrame(rows, columns=["task", "on_task", "share"])


def rehearsed_ages(tasks: pd.DataFrame) -> pd.DataFrame:
    """The mean share of samples that asks a task of each age, over :func:`rehearsed_tasks`.

    Gives ``age`` (0 for the task learned last before the samples were drawn), ``share`` and
    ``observed`` (how many).
    """
    age = (tasks["task"] - 1 - tasks["on_task"]).rename("age")
    return tasks.groupby(age)["share"].agg(share="mean", observed="size").reset_index()


def recall_groups(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Recall of one method's items over its seeds, by age, length and rehearsal.

    Gives ``by`` (age, in all rows; length and rehearsed, in the last row), ``group`` (its range:
    tasks learned since, characters, samples that asked the item), ``recalled`` (share) and
    ``observed`` (how many).
    """
    frame = pd.concat(frames, ignore_index=True)
    if frame.empty:
        return pd.DataFrame(columns=["by", "group", "recalled", "observed"])
    tables = []
    for name, make in (("age", by_age), ("length", by_length), ("rehearsed", by_rehearsal)):
        table = make(frame).rename(columns={name: "group"}).astype({"group": str})
        table.insert(0, "by", name)
        tables.append(table)
    return pd.concat([table for table in tables if len(table)], ignore_index=True)


def item_tables(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables of some runs, each read at its ``horizon`` in ``runs``.

    runs: rows of a study's cells, one data set. Gives ``items``, :func:`recall_groups` of each
    method, ``samples``, :func:`sampled` of each run, and ``samples_by_age``, :func:`rehearsed_ages`
    of each method, with the method of the highest Final first; ``seeds`` is the number of runs that
    kept the data. A table is empty if no run did.
    Raises HoldfastError as :func:`read_items` does.
    """
    groups, samples, ages = [], [], []
    finals = runs.groupby("method", sort=False)["final"].mean()
    for method in finals.sort_values(ascending=False, kind="stable").index:
        frames, tasks = [], []
        for row in runs[runs["method"] == method].to_dict("records"):
            folders = (Path(row["path"]) / name for name in (VERDICTS_FOLDER, SAMPLES_FOLDER))
            if not any(folder.is_dir() for folder in folders):
                continue
            columns = {"dataset": row["dataset"], "method": method}
            items = read_items(row["path"], row["horizon"])
            if items.rows:
                frames.append(items.to_frame())
            if items.samples:
                tasks.append(rehearsed_tasks(items))
                samples.append(_with_columns(sampled(items), **columns, seed=row["seed"]))
        if frames:
            groups.append(_with_columns(recall_groups(frames), **columns, seeds=len(frames)))
        if tasks:
            table = rehearsed_ages(pd.concat(tasks, ignore_index=True))
            ages.append(_with_columns(table, **columns, seeds=len(tasks)))
    parts = {"items": groups, "samples": samples, "samples_by_age": ages}
    return {
        name: pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
        for name, tables in parts.items()
    }


def _with_columns(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """Insert constant columns before the table's own, in place, and return the table."""
    for place, (name, value) in enumerate(values.items()):
        table.insert(place, name, value)
    return table
