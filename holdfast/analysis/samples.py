"""Who is in the samples that the previous model wrote before each task: it explains retention."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

import pandas as pd

from holdfast.analysis.items import Items

_KINDS = ("right", "chimeras", "other")


def sampled(items: Items) -> pd.DataFrame:
    """Who is in the samples that were drawn before each task.

    Gives ``task``, ``samples``, ``right`` (share that is an item learned before, word for word),
    ``chimeras`` (share that asks a learned question and answers otherwise), ``other`` (share that
    asks none), ``distinct`` (learned items that are asked, as a share of all of them), and
    ``newest`` (share of the right ones that are of the latest quarter of the learned tasks).
    """
    known = _Learned(items)
    rows = []
    for task, texts in ((task, texts) for task, texts in items.samples.items() if texts):
        kinds: Counter[str] = Counter()
        asked, ages = set(), []
        for text in texts:
            question = items.template.asked(text)
            learned = known.before(task, question)
            if learned is None:
                kinds["other"] += 1
                continue
            asked.add(question)
            number, whole = learned
            right = text.strip().startswith(whole)
            kinds["right" if right else "chimeras"] += 1
            ages += [task - 1 - number] if right else []
        count, learnable = len(texts), known.count(task)
        rows.append(
            {
                "task": task,
                "samples": count,
                **{kind: kinds[kind] / count for kind in _KINDS},
                "distinct": len(asked) / learnable if learnable else float("nan"),
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
    known = _Learned(items)
    rows = []
    for task, texts in items.samples.items():
        found = [known.before(task, items.template.asked(text)) for text in texts]
        asked = Counter(one[0] for one in found if one is not None)
        rows += [(task, on, asked[on] / len(texts)) for on in range(1, task) if texts]
    return pd.DataFrame(rows, columns=["task", "on_task", "share"])


def rehearsed_ages(tasks: pd.DataFrame) -> pd.DataFrame:
    """The mean share of the samples that asks a task of an age, over the tasks and over seeds.

    tasks: of :func:`rehearsed_tasks`, those of several seeds below each other. Gives ``age`` (0 for
    the task learned last before the samples were drawn), ``share`` and ``observed`` (how many).
    """
    age = (tasks["task"] - 1 - tasks["on_task"]).rename("age")
    table = tasks.groupby(age)["share"].agg(["mean", "size"]).reset_index()
    return table.rename(columns={"mean": "share", "size": "observed"})


class _Learned:
    """The learned items by question; one that was learned again counts as it was taught last."""

    def __init__(self, items: Items) -> None:
        self._by_question: dict[str, list[tuple[int, str]]] = {}
        for number, task in enumerate(items.stream.tasks[: items.horizon], start=1):
            for item in task.items:
                told = (number, items.template.text(item))
                self._by_question.setdefault(items.question(item), []).append(told)
        self._first = sorted(learned[0][0] for learned in self._by_question.values())

    def before(self, task: int, question: str) -> tuple[int, str] | None:
        """Of the tasks before ``task`` the last that taught the question, with the whole text."""
        learned = reversed(self._by_question.get(question, []))
        return next((one for one in learned if one[0] < task), None)

    def count(self, task: int) -> int:
        """How many questions were learned before ``task``."""
        return bisect_left(self._first, task)
