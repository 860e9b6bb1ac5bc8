"""A model that keeps learning: a trajectory whose stream grows, stored in its own directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.notebook import caption, table
from holdfast.evaluation.recall import Recall
from holdfast.learning.config import RunConfig
from holdfast.learning.identity import is_free
from holdfast.learning.learner import Learner
from holdfast.learning.progress import Progress
from holdfast.learning.recorded import Recorded
from holdfast.learning.trajectory import Trajectory
from holdfast.memory.answering import Reply, reply
from holdfast.memory.facts import Facts, read_own, stream_from
from holdfast.memory.plan import Correction, Plan, newest, plan
from holdfast.recipes import recipe
from holdfast.streams import Item, Stream, StreamConfig, Task, write_jsonl
from holdfast.streams.item import quoted

FACTS_FILE = "facts.jsonl"
_SHOWN = 20  # facts, in a notebook


@dataclass(frozen=True)
class Learned:
    """What one call of :meth:`Memory.learn` did.

    batches: names of those learned, in order; facts: theirs; missed: of these, what the model
    cannot repeat. repeated: given, but learned before; corrected: answers in the place of earlier
    ones. known: how many facts there are so far, each question with its newest answer only;
    recalled: how many of them the model repeats, None when nothing was learned, nor asked then.
    """

    batches: tuple[str, ...]
    facts: tuple[Item, ...]
    missed: tuple[Item, ...]
    repeated: tuple[Item, ...]
    corrected: tuple[Correction, ...]
    known: int
    recalled: int | None


class Memory:
    """Facts that a model has learned, batch after batch, in one directory.

    The directory is a trajectory's, with the facts themselves in ``facts.jsonl``. The model stays
    loaded between calls. Use one object in one thread.
    """

    def __init__(self, directory: str | Path, config: RunConfig | None = None) -> None:
        """Open a memory, or prepare a new one; nothing is written before :meth:`learn`.

        config: its settings, None for those that it was made with, or the recipe ``memory``. The
        stream of a configuration does not count.
        Raises HoldfastError when the directory holds something else, is damaged, or belongs to a
        memory with other settings (naming every field that differs).
        """
        self.directory = Path(directory)
        recorded = recorded_in(self.directory)
        chosen = config or recorded or RunConfig.of(recipe("memory"))
        own = StreamConfig(name=_own_file(self.directory))
        self.config = chosen.model_copy(update={"stream": own})
        self._trajectory = self._opened()
        self._asked: tuple[int, tuple[Item, ...]] = 0, ()  # (horizon, facts missed there): a cache

    @property
    def trajectory(self) -> Trajectory:
        """The underlying trajectory; HoldfastError while the memory is empty."""
        if self._trajectory is None:
            raise self._empty()
        return self._trajectory

    @property
    def horizon(self) -> int:
        """How many batches are learned."""
        return 0 if self._trajectory is None else self._trajectory.horizon

    @property
    def facts(self) -> tuple[Item, ...]:
        """All facts so far, each question once, with its newest answer."""
        return () if self._trajectory is None else tuple(newest(self._trajectory.stream.tasks))

    def __repr__(self) -> str:
        told = f"{len(self.facts)} facts in {self.horizon} batches"
        return f"Memory({str(self.directory)!r}, {told}, {self.config.method})"

    def _repr_html_(self) -> str:
        """A table for notebooks: the facts that came last."""
        newest_first = [(item.question, item.answer) for item in reversed(self.facts)]
        left = len(newest_first) - _SHOWN
        more = caption(f"and {left} earlier facts") if left > 0 else ""
        shown = table(("question", "answer"), newest_first[:_SHOWN])
        return caption(repr(self)) + shown + more

    def forgotten(self) -> tuple[Item, ...]:
        """The facts so far, each with its newest answer, that the model does not repeat.

        Raises HoldfastError when the memory is empty.
        """
        if self._asked[0] != self.horizon or not self.horizon:
            learner = self.load()
            known = newest(self.trajectory.stream.tasks[: self.horizon])
            recall = Recall(learner.backbone, learner.template, self.config.evaluation)
            verdicts = zip(known, recall.verdicts(known), strict=True)
            missed = tuple(item for item, verdict in verdicts if not verdict.correct)
            self._asked = self.horizon, missed
        return self._asked[1]

    def plan(self, facts: Facts | None = None, *, again: bool = False) -> Plan:
        """What :meth:`learn` would do; nothing is written. Raises as it does."""
        stream = None if facts is None else stream_from(facts)
        known = read_own(self.directory / FACTS_FILE)
        _check_whole(self.directory, known, self.horizon)
        # A question that is corrected on file but not learned yet is left to the correction.
        current = set(newest(known))
        asked = self.forgotten() if again and self.horizon else ()
        forgotten = tuple(item for item in asked if item in current)
        if forgotten and stream is None:
            stream = Stream((Task("1", forgotten),), "again")
        return plan(known, self.horizon, stream, forgotten)

    def learn(
        self, facts: Facts | None = None, progress: Progress | None = None, *, again: bool = False
    ) -> Learned:
        """Learn new facts, after what is on file but not learned yet; None learns just that.

        facts: see :func:`holdfast.memory.facts.stream_from`. They are checked, written to
        ``facts.jsonl`` and then learned. again: what was forgotten of them is learned once more,
        or, without facts, all that was forgotten. A process killed at any instant loses at most
        the batch in progress, and the same call is then bitwise the uninterrupted one.

        Raises HoldfastError: a fact that is wrong or would be cut by truncation (nothing is changed
        then), another process that writes here, a full disk.
        """
        stream = None if facts is None else stream_from(facts)
        expected = self.plan(stream, again=again)
        if not expected.tasks:
            raise self._empty()
        if len(expected.tasks) == self.horizon:
            self.trajectory.advance()  # a killed process may have left its tables unwritten
            known = len(newest(expected.tasks))
            return Learned((), (), (), expected.repeated, expected.corrected, known, None)
        trajectory = self._trajectory
        if trajectory is None:
            trajectory = self._new(expected.tasks)
            trajectory.learner()  # raises before a directory is made
        with trajectory.writing():
            # Another process may have written before this one held the lock.
            self._trajectory = trajectory
            on_file = read_own(self.directory / FACTS_FILE)
            if on_file:
                trajectory.grow(self._stream(on_file))
            before, decided = trajectory.horizon, self.plan(stream, again=again)
            trajectory.grow(self._stream(decided.tasks))
            if len(decided.tasks) > decided.on_file:
                write_jsonl(trajectory.stream, self.directory / FACTS_FILE)
            trajectory.advance(progress=progress)
        return self._learned(before, decided)

    def ask(self, question: str) -> str | None:
        r"""The model's answer; None when it gives none (what it wrote is in :meth:`reply`).

        Raises HoldfastError when the memory is empty, or the question is, or is too long.
        """
        return self.reply(question).answer

    def reply(self, question: str) -> Reply:
        """The model's whole output for a question. Raises as :meth:`ask`; writes nothing."""
        return reply(self.load(), question)

    def load(self) -> Learner:
        """The model after the last batch; asking loads it as well. HoldfastError when empty."""
        if not self.horizon:
            raise self._empty()
        while True:
            try:
                return self.trajectory.learner()
            except HoldfastError:
                # Another process's commit removes the files of the previous commit.
                newer = self._opened()
                if newer is None or newer.horizon == self.horizon:
                    raise
                self._trajectory = newer

    def _opened(self) -> Trajectory | None:
        # Facts are written before their commit: the file is behind only a commit made meanwhile.
        tasks = read_own(self.directory / FACTS_FILE)
        return self._new(tasks) if tasks else None

    def _new(self, tasks: tuple[Task, ...]) -> Trajectory:
        return Trajectory(self.config, self.directory, stream=self._stream(tasks))

    def _stream(self, tasks: tuple[Task, ...]) -> Stream:
        return Stream(tasks, self.directory.resolve().name, repeats=True)

    def _learned(self, before: int, decided: Plan) -> Learned:
        known = newest(decided.tasks)
        missed = set(self.forgotten())
        batches = decided.tasks[before:]
        facts = [item for item in known if any(item in task.items for task in batches)]
        return Learned(
            batches=tuple(task.name for task in batches),
            facts=tuple(facts),
            missed=tuple(item for item in facts if item in missed),
            repeated=decided.repeated,
            corrected=decided.corrected,
            known=len(known),
            recalled=len(known) - len(missed),
        )

    def _empty(self) -> HoldfastError:
        return HoldfastError(
            f"{self.directory}: has learned nothing yet; teach it facts first "
            f"(holdfast learn {self.directory} FACTS)"
        )


def recorded_in(directory: Path) -> RunConfig | None:
    """The settings that a memory was made with; None where a new one can be made.

    Raises HoldfastError when the directory holds something else, or is damaged.
    """
    if is_free(directory):
        return None
    recorded = Recorded.read(directory)
    if (directory / FACTS_FILE).is_file():
        _check_own(directory, recorded.last.tasks)
        return recorded.config
    if Path(recorded.config.stream.name).name != FACTS_FILE:
        raise HoldfastError(
            f"{directory}: is a trajectory but no memory (it has no {FACTS_FILE}); choose another "
            "directory"
        )
    if recorded.last.completed:
        raise HoldfastError(f"{directory / FACTS_FILE}: is missing; restore the file")
    return recorded.config  # killed before its first batch was committed


def _check_own(directory: Path, learned: Sequence[str]) -> None:
    """Refuse a file of facts that was changed where it is learned; learned: fingerprints."""
    own = read_own(directory / FACTS_FILE)
    _check_whole(directory, own, len(learned))
    for task, fingerprint in zip(own, learned, strict=False):
        if task.fingerprint != fingerprint:
            raise HoldfastError(
                f"{directory / FACTS_FILE}: batch {quoted(task.name)} is not as it was learned; "
                "restore the file, and give corrections to learn"
            )


def _check_whole(directory: Path, own: Sequence[Task], learned: int) -> None:
    if len(own) < learned:
        raise HoldfastError(
            f"{directory / FACTS_FILE}: has {len(own)} of the {learned} batches that were learned; "
            "restore the file"
        )


def _own_file(directory: Path) -> str:
    return os.path.abspath(directory / FACTS_FILE)
