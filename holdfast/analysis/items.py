"""Which facts go first: recall by item, by age, length and how often the model rehearsed it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from holdfast.core.config import build
from holdfast.core.errors import HoldfastError
from holdfast.results import RunRecord
from holdfast.results.items import FOLDER, read_rows, read_samples, sampled_tasks
from holdfast.streams import Item, Stream, StreamConfig, Template, load_stream

_OBSERVED = ["after_task", "on_task", "item", "age", "recalled"]
_OBSERVED += ["question", "answer", "length", "rehearsed"]
_AGES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Items:
    """The items of one run.

    rows: by row and task, whether each item was recalled; samples: by task, the texts that the
    previous model wrote before it, empty where none were kept.
    """

    stream: Stream
    template: Template
    rows: Mapping[int, Mapping[int, list[bool]]]
    samples: Mapping[int, list[str]]

    def to_frame(self) -> pd.DataFrame:
        """One row an observation: ``after_task``, ``on_task``, ``item`` (from 1, in its task),
        ``age``, ``recalled``, ``question``, ``answer``, ``length`` (characters of both) and
        ``rehearsed`` (samples up to there that ask its question; <NA> where none were kept).
        """
        seen = self._asked()
        parts: list[dict[str, Any]] = []
        for after_task, row in self.rows.items():
            for on_task, verdicts in row.items():
                items = self.stream.tasks[on_task - 1].items
                for number, (item, recalled) in enumerate(zip(items, verdicts, strict=True), 1):
                    asked = seen.get(self._question(item), [])
                    parts.append(
                        {
                            "after_task": after_task,
                            "on_task": on_task,
                            "item": number,
                            "age": after_task - on_task,
                            "recalled": recalled,
                            "question": item.question,
                            "answer": item.answer,
                            "length": len(item.question) + len(item.answer),
                            "rehearsed": sum(task <= after_task for task in asked)
                            if self.samples
                            else pd.NA,
                        }
                    )
        return pd.DataFrame(parts, columns=_OBSERVED).astype({"rehearsed": "Int64"})

    def _question(self, item: Item) -> str:
        """The item's question as a sample has it."""
        return self.template.asked(self.template.prompt(item))

    def _asked(self) -> dict[str, list[int]]:
        """By question, the tasks before which a sample asked it, once for each sample."""
        found: dict[str, list[int]] = {}
        for task, texts in self.samples.items():
            for text in texts:
                found.setdefault(self.template.asked(text), []).append(task)
        return found


def read_items(directory: Path | str) -> Items:
    """Read the verdicts by item of a run, its stream, and its samples, as far as they were kept.

    Raises HoldfastError when the run has neither, or its stream is not where it was.
    """
    record = RunRecord.open(directory)
    kept = sampled_tasks(record.path, record.horizon)
    without = kept and not (record.path / FOLDER).is_dir()
    rows = {} if without else read_rows(record.path, record.horizon)
    config = record.description.config
    stream = load_stream(build(StreamConfig, config["stream"], source="stream"))
    for row in rows.values():
        for task, verdicts in row.items():
            if task > len(stream.tasks) or len(stream.tasks[task - 1].items) != len(verdicts):
                raise HoldfastError(
                    f"{record.path}: task {task} has {len(verdicts)} verdicts, which the stream "
                    f"{stream.name} does not have now; put back the stream that was learned"
                )
    template = Template(build(Template.Config, config["template"], source="template"))
    return Items(stream, template, rows, {task: read_samples(record.path, task) for task in kept})


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


def sampled(items: Items) -> pd.DataFrame:
    """Who is in the samples that were drawn before each task.

    Gives ``task``, ``samples``, ``right`` (share that is an item learned before, word for word),
    ``chimeras`` (share that asks a learned question and answers otherwise), ``other`` (share that
    asks none), ``distinct`` (learned items that are asked, as a share of all of them), and
    ``newest`` (share of the right ones that are of the latest quarter of the learned tasks).
    """
    rows = []
    for task, texts in ((task, texts) for task, texts in items.samples.items() if texts):
        learned = {
            items.template.asked(items.template.prompt(item)): (number, items.template.text(item))
            for number, one in enumerate(items.stream.tasks[: task - 1], start=1)
            for item in one.items
        }
        kinds: Counter[str] = Counter()
        asked, ages = set(), []
        for text in texts:
            question = items.template.asked(text)
            if question not in learned:
                kinds["other"] += 1
                continue
            asked.add(question)
            number, whole = learned[question]
            right = text.strip().startswith(whole)
            kinds["right" if right else "chimeras"] += 1
            ages += [task - 1 - number] if right else []
        count = len(texts)
        rows.append(
            {
                "task": task,
                "samples": count,
                **{kind: kinds[kind] / count for kind in _KINDS},
                "distinct": len(asked) / len(learned) if learned else float("nan"),
                "newest": sum(age < (task - 1) / 4 for age in ages) / len(ages)
                if ages
                else float("nan"),
            }
        )
    return pd.DataFrame(rows, columns=["task", "samples", *_KINDS, "distinct", "newest"])


def rehearsed_tasks(items: Items) -> pd.DataFrame:
    """Of the samples drawn before each task, the share that asks each task learned by then.

    Gives ``task`` (before which they were drawn), ``on_task`` and ``share``.
    """
    learned: dict[str, int] = {
        items.template.asked(items.template.prompt(item)): number
        for number, task in enumerate(items.stream.tasks, start=1)
        for item in task.items
    }
    rows = []
    for task, texts in items.samples.items():
        asked = Counter(learned.get(items.template.asked(text), 0) for text in texts)
        rows += [(task, on, asked[on] / len(texts)) for on in range(1, task) if texts]
    return pd.DataFrame(rows, columns=["task", "on_task", "share"])


_KINDS = ("right", "chimeras", "other")


def _shares(frame: pd.DataFrame, groups: pd.Series) -> pd.DataFrame:
    table = frame.groupby(groups, observed=True)["recalled"].agg(["mean", "size"]).reset_index()
    return table.rename(columns={"mean": "recalled", "size": "observed"})


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"
