"""A model that keeps learning: a trajectory whose stream grows, stored in its own directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.builders.paraphrases import Paraphraser, Report, Rules
from holdfast.core.errors import HoldfastError
from holdfast.core.notebook import caption, table
from holdfast.evaluation.recall import Recall
from holdfast.learning.config import RunConfig
from holdfast.learning.identity import is_free
from holdfast.learning.learner import Learner
from holdfast.learning.progress import Progress
from holdfast.learning.recorded import Recorded
from holdfast.learning.trajectory import Trajectory
from holdfast.memory.answering import Reply, best_spellings, replies
from holdfast.memory.facts import Facts, frame_of, stream_from
from holdfast.memory.knowledge import Knowledge, measure, read_knowledge, write_knowledge
from holdfast.memory.plan import Correction, Plan, plan
from holdfast.memory.spelling import loose_key, nearest, taught_spellings
from holdfast.memory.wordings import held_out, with_wordings
from holdfast.recipes import recipe
from holdfast.results.commit import completed_in
from holdfast.streams import Item, Stream, StreamConfig, Task, write_jsonl
from holdfast.streams.batches import FACTS_FILE, latest, newest, read_batches
from holdfast.streams.item import quoted

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 20  # facts shown in a notebook


@dataclass(frozen=True)
class Learned:
    """What one call of ``Memory.learn`` did.

    batches: names of the batches learned, in order; facts: theirs, without those corrected later;
    missed: those of ``facts`` that the model does not recall. repeated: given facts that were
    learned before; corrected: answers that replace earlier ones. known: the number of facts
    learned so far; recalled: how many of them the model recalls, None when this call learned
    nothing. reworded: how many other wordings of ``facts`` were held out, and how many of these
    the model answers.
    """

    batches: tuple[str, ...]
    facts: tuple[Item, ...]
    missed: tuple[Item, ...]
    repeated: tuple[Item, ...]
    corrected: tuple[Correction, ...]
    known: int
    recalled: int | None
    reworded: tuple[int, int] = (0, 0)


class Memory:
    """A model and the facts that it has learned batch by batch, stored in one directory.

    It is a trajectory's directory with the facts in ``facts.jsonl``. The model stays loaded
    between calls. Not thread-safe.
    """

    def __init__(self, directory: str | Path, config: RunConfig | None = None) -> None:
        """Open a memory, or prepare a new one; nothing is written before :meth:`learn`.

        config: its settings; None takes the recorded ones, or the recipe ``memory`` for a new
        memory. The configuration's stream is ignored.
        Raises HoldfastError when the directory holds something else, is damaged, or belongs to a
        memory with other settings (naming every field that differs).
        """
        self.directory = Path(directory)
        recorded = recorded_in(self.directory)
        chosen = config or recorded or RunConfig.of(recipe("memory"))
        if chosen.template.overlong != "refuse":
            raise HoldfastError(
                "template.overlong: a memory learns every fact whole; leave it at refuse, and "
                "shorten what is too long"
            )
        own = StreamConfig(name=_own_file(self.directory))
        self.config = chosen.model_copy(update={"stream": own})
        self._trajectory = self._opened()
        # Caches, each for the horizon that it names.
        self._asked: tuple[int, tuple[Item, ...]] = 0, ()  # facts missed
        self._known: tuple[int, Knowledge | None] = 0, None
        self._spelled: tuple[int, dict[str, str]] = 0, {}  # taught questions by loose key

    @property
    def trajectory(self) -> Trajectory:
        """The underlying trajectory; HoldfastError while the memory is empty."""
        if self._trajectory is None:
            raise self._empty()
        return self._trajectory

    @property
    def seed(self) -> int:
        """The seed of everything that is drawn."""
        return self.config.seed

    @property
    def horizon(self) -> int:
        """How many batches are learned."""
        return 0 if self._trajectory is None else self._trajectory.horizon

    @property
    def facts(self) -> tuple[Item, ...]:
        """All facts so far, each question once, with its newest answer."""
        return () if self._trajectory is None else tuple(newest(self._trajectory.stream.tasks))

    def to_frame(self) -> pd.DataFrame:
        """A data frame with one row a fact: ``batch``, ``question``, ``answer``, ``aliases``.

        As in ``facts``, with the batch of the newest answer. It asks the model nothing.
        """
        return frame_of(() if self._trajectory is None else self._trajectory.stream.tasks)

    def __repr__(self) -> str:
        told = f"{len(self.facts)} facts in {self.horizon} batches"
        return f"Memory({str(self.directory)!r}, {told}, {self.config.method})"

    def _repr_html_(self) -> str:
        """A table of the latest facts, for notebooks."""
        newest_first = [(item.question, item.answer) for item in reversed(self.facts)]
        left = len(newest_first) - _SHOWN
        more = caption(f"and {left} earlier facts") if left > 0 else ""
        shown = table(("question", "answer"), newest_first[:_SHOWN])
        return caption(repr(self)) + shown + more

    def forgotten(self) -> tuple[Item, ...]:
        """The learned facts, each with its newest answer, that the model does not recall.

        Raises HoldfastError when the memory is empty.
        """
        if self._asked[0] != self.horizon or not self.horizon:
            self.load()
            known = newest(self.trajectory.stream.tasks[: self.horizon])
            verdicts = zip(known, self._recalled(known), strict=True)
            self._asked = self.horizon, tuple(item for item, right in verdicts if not right)
        return self._asked[1]

    def _recalled(self, items: Sequence[Item]) -> list[bool]:
        learner = self.load()
        recall = Recall(learner.backbone, learner.template, self.config.evaluation)
        return [verdict.correct for verdict in recall.verdicts(items)]

    def plan(self, facts: Facts | None = None, *, again: bool = False) -> Plan:
        """Plan what :meth:`learn` would do, without writing; raises the same errors."""
        stream = None if facts is None else stream_from(facts)
        known = read_batches(self.directory / FACTS_FILE)
        _check_whole(self.directory, known, self.horizon)
        # Leave out forgotten facts whose correction is on file but not learned yet.
        current = set(newest(known))
        asked = self.forgotten() if again and self.horizon else ()
        forgotten = tuple(item for item in asked if item in current)
        if forgotten and stream is None:
            stream = Stream((Task("1", forgotten),), "again")
        return plan(known, self.horizon, stream, forgotten)

    def worded(
        self,
        facts: Facts,
        count: int = 0,
        paraphraser: Paraphraser | None = None,
        report: Report = lambda *_: None,
    ) -> Stream:
        """The facts with other wordings of their questions, as :meth:`learn` learns them.

        Those that the facts bring (``paraphrases``), up to ``count`` of each by the paraphraser,
        by default by rules for common English forms; and one more, held out to be asked.
        """
        known = latest(read_batches(self.directory / FACTS_FILE)).values()
        given = stream_from(facts)
        return with_wordings(given, count, paraphraser or Rules(), report, list(known))

    def learn(
        self,
        facts: Facts | None = None,
        progress: Progress | None = None,
        *,
        again: bool = False,
        paraphrases: int = 0,
    ) -> Learned:
        """Learn ``facts``, after the batches on file that are not learned yet.

        facts: what :func:`holdfast.load_stream` takes, a stream, or ``-`` for JSON lines from
        standard input; None learns only the batches on file.
        New facts are checked, written to ``facts.jsonl`` and then learned. again: also relearn
        those of ``facts`` that were forgotten, or all forgotten facts when ``facts`` is None.
        paraphrases: see :meth:`worded`. A
        killed process loses at most the batch in progress; the same call then gives bitwise the
        result of an uninterrupted one.

        Raises HoldfastError for a fact that is invalid or would be truncated (nothing is changed
        then), while another process writes here, and when the disk is full.
        """
        stream = None if facts is None else self.worded(facts, paraphrases)
        expected = self.plan(stream, again=again)
        if not expected.tasks:
            raise self._empty()
        if len(expected.tasks) == self.horizon:
            self.trajectory.advance()  # a killed process may have left its tables unwritten
            self._keep_knowledge()
            known = len(newest(expected.tasks))
            return Learned((), (), (), expected.repeated, expected.corrected, known, None)
        trajectory = self._trajectory
        if trajectory is None:
            trajectory = self._new(expected.tasks)
            trajectory.learner()  # raises before a directory is made
        with trajectory.writing():
            # Another process may have written before this one held the lock.
            self._trajectory = trajectory
            on_file = read_batches(self.directory / FACTS_FILE)
            if on_file:
                trajectory.grow(self._stream(on_file))
            before, decided = trajectory.horizon, self.plan(stream, again=again)
            trajectory.grow(self._stream(decided.tasks))
            if len(decided.tasks) > decided.on_file:
                write_jsonl(trajectory.stream, self.directory / FACTS_FILE)
            trajectory.advance(progress=progress)
            self._keep_knowledge()
        return self._learned(before, decided)

    def ask(self, question: str) -> str | None:
        """The model's answer; None when it was not taught one, or gives none.

        :meth:`reply` tells what it would have said. Raises as :meth:`reply`.
        """
        reply = self.reply(question)
        return None if reply.taught is False else reply.answer

    def reply(self, question: str) -> Reply:
        """The model's whole output for a question; see :meth:`replies`."""
        return self.replies([question])[0]

    def replies(self, questions: Sequence[str]) -> list[Reply]:
        """The model's output for each question, decoded side by side; writes nothing.

        A question that was taught in another case, punctuation or spacing is asked as it was
        taught, any other in the spelling that the model finds most probable.
        Raises HoldfastError when the memory or a question is empty, or a question is too long.
        """
        learner, knowledge = self.load(), self.knowledge()
        spelled = self._spellings()
        taught = [spelled.get(loose_key(question)) for question in questions]
        others = [question for question, own in zip(questions, taught, strict=True) if own is None]
        best = iter(best_spellings(learner, others))
        return replies(learner, [own or next(best) for own in taught], knowledge)

    def knowledge(self) -> Knowledge | None:
        """What tells taught from untaught; None for a method that does not rehearse.

        It is measured when a batch is learned, and read here. Raises HoldfastError when empty.
        """
        if self._known[0] != self.horizon or not self.horizon:
            learner = self.load()
            there, found = read_knowledge(self.directory)
            self._known = self.horizon, found if there else measure(learner, self._taught())
        return self._known[1]

    def is_on_file(self, question: str) -> bool:
        """Whether the question was taught, but for case, punctuation and spacing."""
        return loose_key(question) in self._spellings()

    def nearest(self, question: str, most: int = 3) -> list[str]:
        """The taught questions that share most words with this one; perhaps none."""
        return nearest(question, [item.question for item in self._learned_facts()], most)

    def _learned_facts(self) -> list[Item]:
        return newest(self.trajectory.stream.tasks[: self.horizon])

    def _taught(self) -> int:
        """How many sequences are learned, other wordings included."""
        return len(latest(self.trajectory.stream.tasks[: self.horizon]))

    def _spellings(self) -> dict[str, str]:
        if self._spelled[0] != self.horizon:
            learned = latest(self.trajectory.stream.tasks[: self.horizon])
            questions = (item.question for item in learned.values())
            self._spelled = self.horizon, taught_spellings(questions)
        return self._spelled[1]

    def load(self) -> Learner:
        """Load the model after the last batch, as asking does; HoldfastError when empty."""
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

    def refresh(self) -> bool:
        """Load what another process has taught since; False when there is nothing new.

        Raises HoldfastError when that cannot be loaded; the model of before stays in use then.
        """
        if completed_in(self.directory) <= self.horizon:
            return False
        newer = self._opened()
        if newer is None:
            return False
        newer.learner()
        self._trajectory = newer
        return True

    def _keep_knowledge(self) -> None:
        there, _ = read_knowledge(self.directory)
        if not there:
            write_knowledge(self.directory, measure(self.load(), self._taught()))

    def _opened(self) -> Trajectory | None:
        # Facts are written before their commit, so only a commit made after this read can be ahead.
        tasks = read_batches(self.directory / FACTS_FILE)
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
        others = held_out(facts)
        return Learned(
            reworded=(len(others), sum(self._recalled(others))),
            batches=tuple(task.name for task in batches),
            facts=tuple(facts),
            missed=tuple(item for item in facts if item in missed),
            repeated=decided.repeated,
            corrected=decided.corrected,
            known=len(known),
            recalled=len(known) - len(missed),
        )

    def _empty(self) -> HoldfastError:
        if not self.directory.exists():
            return HoldfastError(
                f"{self.directory}: no such memory; holdfast learn {self.directory} FACTS makes one"
            )
        return HoldfastError(
            f"{self.directory}: has learned nothing yet; teach it facts first "
            f"(holdfast learn {self.directory} FACTS)"
        )


def recorded_in(directory: Path) -> RunConfig | None:
    """The settings that a memory was made with; None where a new memory can be made.

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
    """Refuse a facts file whose learned batches were edited. learned: their fingerprints."""
    own = read_batches(directory / FACTS_FILE)
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
