"""Which facts go first: recall by item, by age, length and how often the model rehearsed it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.core.config import build
from holdfast.core.errors import HoldfastError
from holdfast.results import RunRecord
from holdfast.results.items import FOLDER, SAMPLES, read_rows, read_samples, sampled_tasks
from holdfast.streams import Item, Stream, StreamConfig, Template, load_stream

_AGES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Items:
    """The items of one run.

    horizon: tasks learned; rows: by row and task, whether each item was recalled; samples: by
    task, the texts that the previous model wrote before it, empty where none were kept.
    """

    stream: Stream
    template: Template
    horizon: int
    rows: Mapping[int, Mapping[int, list[bool]]]
    samples: Mapping[int, list[str]]

    def to_frame(self) -> pd.DataFrame:
        """One row an observation: ``after_task``, ``on_task``, ``item`` (from 1, in its task),
        ``age``, ``recalled``, ``question``, ``answer``, ``length`` (characters of both) and
        ``rehearsed`` (samples up to there that ask its question; <NA> where none were kept).
        """
        asked = [(after, on, each) for after, row in self.rows.items() for on, each in row.items()]
        sizes = [len(each) for _, _, each in asked]
        after_task = np.repeat([after for after, _, _ in asked], sizes).astype(np.int64)
        on_task = np.repeat([on for _, on, _ in asked], sizes).astype(np.int64)
        facts = [item for _, on, _ in asked for item in self.stream.tasks[on - 1].items]
        frame = pd.DataFrame(
            {
                "after_task": after_task,
                "on_task": on_task,
                "item": [number for size in sizes for number in range(1, size + 1)],
                "age": after_task - on_task,
                "recalled": [one for _, _, each in asked for one in each],
                "question": [item.question for item in facts],
                "answer": [item.answer for item in facts],
                "length": [len(item.question) + len(item.answer) for item in facts],
            }
        )
        if not (self.samples and asked):
            return frame.assign(rehearsed=pd.array([pd.NA] * len(frame), dtype="Int64"))
        so_far = {task: counts.cumsum(axis=1) for task, counts in self.rehearsals().items()}
        counted = np.concatenate([so_far[on][:, after] for after, on, _ in asked])
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
        """The item's question as a sample has it."""
        return self.template.asked(self.template.prompt(item))


def has_items(directory: Path | str) -> bool:
    """Whether a run kept verdicts by item or samples."""
    return any((Path(directory) / name).is_dir() for name in (FOLDER, SAMPLES))


def read_items(directory: Path | str, horizon: int | None = None) -> Items:
    """Read the verdicts by item of a run, its stream, and its samples, as far as they were kept.

    horizon: as the run stood after so many tasks; None for all that it learned.
    Raises HoldfastError when the run has neither, its stream is not where it was, or it left out
    items.
    """
    record = RunRecord.open(directory)
    learned = record.horizon if horizon is None else min(horizon, record.horizon)
    kept = sampled_tasks(record.path, learned)
    without = kept and not (record.path / FOLDER).is_dir()
    rows = {} if without else read_rows(record.path, learned)
    config = record.description.config
    stream = load_stream(build(StreamConfig, config["stream"], source="stream"))
    for row in rows.values():
        for task, verdicts in row.items():
            if task > len(stream.tasks) or len(stream.tasks[task - 1].items) != len(verdicts):
                why = "put back the stream that was learned"
                if config["template"].get("overlong") == "drop":
                    why = (
                        "template.overlong: drop left some out, and which is known only with the "
                        "model's tokenizer; learn a stream without them"
                    )
                raise HoldfastError(
                    f"{record.path}: task {task} has {len(verdicts)} verdicts, which the stream "
                    f"{stream.name} does not have now; {why}"
                )
    template = Template(build(Template.Config, config["template"], source="template"))
    samples = {task: read_samples(record.path, task) for task in kept}
    return Items(stream, template, learned, rows, samples)


def recall_groups(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """What is recalled of the items of one method, over its seeds.

    frames: of :meth:`Items.to_frame`. Gives ``by`` (age, of all rows; length and rehearsed, after
    the last row), ``group`` (its range: tasks learned since, characters, samples that asked the
    item), ``recalled`` (share) and ``observed`` (how many).
    """
    frame = pd.concat(frames, ignore_index=True)
    if frame.empty:
        return pd.DataFrame(columns=["by", "group", "recalled", "observed"])
    tables = {
        name: make(frame).rename(columns={name: "group"}).astype({"group": str})
        for name, make in (("age", by_age), ("length", by_length), ("rehearsed", by_rehearsal))
    }
    named = pd.concat({name: table for name, table in tables.items() if len(table)}, names=["by"])
    return named.reset_index("by").reset_index(drop=True)


def by_age(frame: pd.DataFrame) -> pd.DataFrame:
    """``age`` (its range), ``recalled`` (share) and ``observed`` (how many), over all rows."""
    edges = [*(age for age in _AGES if age <= frame["age"].max()), frame["age"].max() + 1]
    edges = sorted(set(edges))
    names = [_range(low, high - 1) for low, high in itertools.pairwise(edges)]
    groups = pd.cut(frame["age"], edges, right=False, labels=names)
    return _shares(frame, groups.rename("age"))


def by_length(frame: pd.DataFrame) -> pd.DataFrame:
    """After the last row, by thirds of the length in characters of question and answer.

    Empty where all are equally long.
    """
    last = frame[frame["after_task"] == frame["after_task"].max()]
    if last["length"].nunique() == 1:
        return pd.DataFrame(columns=["length", "recalled", "observed"])
    groups = pd.qcut(last["length"], 3, duplicates="drop")
    names = [_range(int(cut.left) + 1, int(cut.right)) for cut in groups.cat.categories]
    return _shares(last, groups.cat.rename_categories(names).rename("length"))


def by_rehearsal(frame: pd.DataFrame) -> pd.DataFrame:
    """After the last row, by how many samples have asked the item; empty without samples."""
    last = frame[(frame["after_task"] == frame["after_task"].max()) & frame["rehearsed"].notna()]
    if last.empty:
        return pd.DataFrame(columns=["rehearsed", "recalled", "observed"])
    edges = sorted({*(edge for edge in _AGES if edge <= last["rehearsed"].max()), 0})
    edges.append(int(last["rehearsed"].max()) + 1)
    names = [_range(low, high - 1) for low, high in itertools.pairwise(edges)]
    groups = pd.cut(last["rehearsed"].astype(int), edges, right=False, labels=names)
    return _shares(last, groups.rename("rehearsed"))


def lives(frame: pd.DataFrame) -> pd.DataFrame:
    """Each item's life: ``on_task``, ``item``, ``question``, ``answer``, ``life``, ``lost_after``.

    life: a 1 or a 0 for each row that asked it; lost_after: the row since which it was not recalled
    again, <NA> while it is, or where it never was. Those lost at the earliest age come first.
    """
    rows = []
    for (task, number), part in frame.groupby(["on_task", "item"], sort=True):
        part = part.sort_values("after_task")
        recalled = list(part["recalled"])
        kept = [place for place, one in enumerate(recalled) if one]
        gone = kept and kept[-1] + 1 < len(recalled)
        rows.append(
            {
                "on_task": task,
                "item": number,
                "question": part["question"].iloc[0],
                "answer": part["answer"].iloc[0],
                "life": "".join("01"[one] for one in recalled),
                "lost_after": part["after_task"].iloc[kept[-1] + 1] if gone else pd.NA,
            }
        )
    table = pd.DataFrame(rows).astype({"lost_after": "Int64"})
    age = (table["lost_after"] - table["on_task"]).rename("age")
    order = age.fillna(10**9).sort_values(kind="stable").index
    return table.loc[order].reset_index(drop=True)


def _shares(frame: pd.DataFrame, groups: pd.Series) -> pd.DataFrame:
    table = frame.groupby(groups, observed=True)["recalled"].agg(["mean", "size"]).reset_index()
    return table.rename(columns={"mean": "recalled", "size": "observed"})


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"
