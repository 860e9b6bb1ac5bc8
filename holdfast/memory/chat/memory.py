"""A memory on a chat model: lessons, each in an adapter of its own, and the list of facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.builders.paraphrases import Paraphraser, Report, Rules
from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import alone
from holdfast.core.seeding import derive
from holdfast.memory.chat.answering import Answer, Answerer
from holdfast.memory.chat.batch import learn_batch, taught_wordings
from holdfast.memory.chat.engine import Engine
from holdfast.memory.chat.record import (
    LESSONS,
    LearnedLesson,
    Record,
    is_chat_memory,
    read_record,
    remove_leftovers,
    write_lesson,
    write_record,
)
from holdfast.memory.facts import Facts, frame_of, stream_from
from holdfast.memory.plan import Correction, Plan, plan
from holdfast.memory.spelling import nearest
from holdfast.memory.wordings import with_wordings
from holdfast.model.fetch import fetch, lasting_name
from holdfast.streams import Item, Stream, Task, write_jsonl
from holdfast.streams.batches import FACTS_FILE, fact_key, latest, newest, read_batches
from holdfast.streams.item import quoted
from holdfast.streams.registry import question_key

if TYPE_CHECKING:
    import pandas as pd

Told = Callable[[str, int, int], None]  # report(what, done, total)


@dataclass(frozen=True)
class LessonOutcome:
    """What one call of :meth:`ChatMemory.learn` did.

    lessons: names of those learned; facts: theirs; missed: those of them whose answers the weights
    do not give; repeated: given facts that were known before; corrected: answers that replace
    earlier ones; known: the number of facts on file.
    """

    lessons: tuple[str, ...]
    facts: tuple[Item, ...]
    missed: tuple[Item, ...]
    repeated: tuple[Item, ...]
    corrected: tuple[Correction, ...]
    known: int


class ChatMemory:
    """A chat model and the facts that it was taught, in one directory. Not thread-safe.

    The model stays loaded between calls. What was not taught is answered by the untouched model.
    """

    def __init__(self, directory: str | Path, model: str = "smollm2", seed: int = 0) -> None:
        """Open a memory, or prepare a new one; nothing is written before :meth:`learn`.

        model, seed: of a new memory; an existing one has its own.
        Raises HoldfastError when the directory holds something else or is damaged.
        """
        self.directory = Path(directory)
        self._record = Record(lasting_name(model), "", seed)
        self._tasks: tuple[Task, ...] = ()
        self._engine: Engine | None = None
        self._answerer: Answerer | None = None
        if is_chat_memory(self.directory):
            self._read()
        else:
            _check_free(self.directory)

    @property
    def horizon(self) -> int:
        """How many lessons are learned."""
        return len(self._record.lessons)

    @property
    def model(self) -> str:
        """The model's name; a path is absolute."""
        return self._record.model

    @property
    def seed(self) -> int:
        """The seed of everything that is drawn."""
        return self._record.seed

    @property
    def facts(self) -> tuple[Item, ...]:
        """All facts on file, each question once, with its newest answer."""
        return tuple(newest(self._tasks))

    def to_frame(self) -> pd.DataFrame:
        """A data frame with one row a fact: ``batch``, ``question``, ``answer``, ``aliases``."""
        return frame_of(self._tasks)

    def __repr__(self) -> str:
        counts = f"{len(self.facts)} facts in {self.horizon} lessons"
        return f"ChatMemory({str(self.directory)!r}, {counts}, {self.model})"

    def _read(self) -> None:
        """Read what is committed. The list is written before a commit, so it may only be ahead."""
        self._record = read_record(self.directory)
        self._tasks = read_batches(self.directory / FACTS_FILE)
        self._answerer = None
        path = self.directory / FACTS_FILE
        if len(self._tasks) < self.horizon:
            raise HoldfastError(
                f"{path}: has {len(self._tasks)} of the {self.horizon} lessons that were learned; "
                "restore the file"
            )
        for task, lesson in zip(self._tasks, self._record.lessons, strict=False):
            if task.fingerprint != lesson.fingerprint:
                raise HoldfastError(
                    f"{path}: lesson {quoted(task.name)} is not as it was learned; restore the "
                    "file, and give corrections to learn"
                )

    def refresh(self) -> bool:
        """Take up what another process has learned since; False when there is nothing new."""
        if not is_chat_memory(self.directory) or read_record(self.directory) == self._record:
            return False
        self._read()
        return True

    def engine(self, report: Told = lambda *_: None) -> Engine:
        """The loaded model; HoldfastError when it cannot be had or is another than before."""
        if self._engine is None:
            engine = Engine(
                fetch(self.model), report=lambda done, total: report("preparing", done, total)
            )
            self._check_model(engine)
            self._engine = engine
        return self._engine

    def _check_model(self, engine: Engine) -> None:
        if self._record.fingerprint not in ("", engine.fingerprint):
            raise HoldfastError(
                f"{self.directory}: was taught to another model than the {self.model} that is "
                "here now; fetch that one again, or teach the facts of facts.jsonl to a new memory"
            )

    def load(self) -> None:
        """Load the model now. Raises as :meth:`engine`."""
        self.engine()

    def plan(self, facts: Facts | None = None, *, again: bool = False) -> Plan:
        """What :meth:`learn` would do, without writing; raises the same errors."""
        stream = None if facts is None else stream_from(facts)
        missed = self.missed() if again else ()
        if missed and stream is None:
            stream = Stream((Task("again", missed),), "again")
        return plan(self._tasks, self.horizon, stream, missed)

    def missed(self) -> tuple[Item, ...]:
        """The facts whose answers the weights did not give at the end of their lesson."""
        learned = self._tasks[: self.horizon]
        last: dict[str, bool] = {}
        for task, lesson in zip(learned, self._record.lessons, strict=True):
            last |= {fact_key(item): False for item in task.items}
            last |= dict.fromkeys(lesson.missed, True)
        return tuple(item for item in newest(learned) if last[question_key(item.question)])

    def worded(
        self,
        facts: Facts,
        count: int = 0,
        paraphraser: Paraphraser | None = None,
        report: Report = lambda *_: None,
    ) -> Stream:
        """The facts, with up to ``count`` other wordings of each that are kept on file."""
        known = list(latest(self._tasks).values())
        return with_wordings(stream_from(facts), count, paraphraser or Rules(), report, known)

    def learn(
        self, facts: Facts | None = None, *, again: bool = False, report: Told = lambda *_: None
    ) -> LessonOutcome:
        """Learn facts, after those on file that are not learned yet; each task is one lesson.

        facts: what :func:`holdfast.load_stream` takes, a stream, or ``-`` for JSON lines from
        standard input; None learns only what is on file. again: learn once more what the weights
        did not give. report(what, done, total): the progress, in facts.
        A killed process loses at most the lesson in progress; the same call continues.
        Raises HoldfastError for a fact that is invalid or too long (nothing is changed then), while
        another process writes here, and when the disk is full.
        """
        stream = None if facts is None else self.worded(facts)
        first = self.plan(stream, again=again)
        if not first.tasks:
            raise self._empty()
        if len(first.tasks) == self.horizon:
            return self._outcome(self.horizon, first)
        engine = self.engine(report)
        for task in first.tasks[self.horizon :]:
            for item in task.items:
                engine.check_fact(item.question, item.answer)
        with alone(self.directory):
            if is_chat_memory(self.directory):
                self._read()  # another process may have learned before this one held the lock
                self._check_model(engine)
            remove_leftovers(self.directory)
            decided = self.plan(stream, again=again)
            begin = self.horizon
            if not is_chat_memory(self.directory):
                write_record(self.directory, self._record)
            if len(decided.tasks) > decided.on_file:
                whole = Stream(decided.tasks, self.directory.resolve().name, repeats=True)
                write_jsonl(whole, self.directory / FACTS_FILE)
                self._tasks = decided.tasks
            for task in self._tasks[begin:]:
                self._learn_task(engine, task, report)
        return self._outcome(begin, decided)

    def _learn_task(self, engine: Engine, task: Task, report: Told) -> None:
        """Learn one task and commit it."""
        number = self.horizon + 1
        learned = learn_batch(
            engine,
            task,
            derive(self._record.seed, "lesson", number),
            lambda done, total: report(f"lesson {task.name}", done, total),
        )
        file = f"{number:05d}-{task.fingerprint[:8]}.safetensors"
        write_lesson(self.directory, file, learned.tensors, learned.owners)
        lesson = LearnedLesson(task.name, task.fingerprint, file, learned.missed)
        self._record = self._record.after(lesson, engine.fingerprint)
        write_record(self.directory, self._record)
        self._answerer = None

    def _outcome(self, begin: int, decided: Plan) -> LessonOutcome:
        batches = self._tasks[begin : self.horizon]
        here = {fact_key(item) for task in batches for item in task.items}
        facts = tuple(item for item in self.facts if question_key(item.question) in here)
        missed = set(self.missed())
        return LessonOutcome(
            tuple(task.name for task in batches),
            facts,
            tuple(item for item in facts if item in missed),
            decided.repeated,
            decided.corrected,
            len(self.facts),
        )

    def ask(self, question: str) -> str:
        """The answer to a question; :meth:`reply` says where it comes from."""
        return self.reply(question).text

    def reply(self, question: str) -> Answer:
        """The answer to a question and where it comes from."""
        return self.replies([question])[0]

    def replies(self, questions: Sequence[str]) -> list[Answer]:
        """The answers to several questions; writes nothing.

        Raises HoldfastError when the memory or a question is empty, or a question is too long.
        """
        return self.answerer().replies(questions)

    def answerer(self) -> Answerer:
        """What answers questions from all lessons so far."""
        if not self.horizon:
            raise self._empty()
        if self._answerer is None:
            self._answerer = Answerer(
                self.engine(), self.directory, self._record, self._tasks[: self.horizon]
            )
        return self._answerer

    @property
    def fingerprint(self) -> str:
        """sha256 over the model, the lessons and their facts."""
        facts = [[task.name, task.fingerprint] for task in self._tasks[: self.horizon]]
        return sha256_of([asdict(self._record), facts])

    def wordings(self) -> list[str]:
        """Every wording that was learned, those by rule included."""
        return [text for task in self._tasks[: self.horizon] for text in taught_wordings(task)]

    def sizes(self) -> dict[str, int]:
        """Bytes on disk of the lessons and of the list of facts."""
        paths = [self.directory / LESSONS / lesson.file for lesson in self._record.lessons]
        return {
            "lessons": sum(path.stat().st_size for path in paths if path.is_file()),
            "list": (self.directory / FACTS_FILE).stat().st_size,
        }

    def nearest(self, question: str, most: int = 3) -> list[str]:
        """The taught questions that share most words with this one; perhaps none."""
        return nearest(question, [item.question for item in self.facts], most)

    def _empty(self) -> HoldfastError:
        what = "has learned nothing yet" if self.directory.exists() else "no such memory"
        return HoldfastError(
            f"{self.directory}: {what}; holdfast learn {self.directory} FACTS teaches it"
        )


def _check_free(directory: Path) -> None:
    """Refuse a directory that holds something else; the record is the first file of a memory."""
    try:
        others = {path.name for path in directory.iterdir()} - {".lock"}
    except FileNotFoundError:
        return
    except OSError as error:
        raise HoldfastError(
            f"{directory}: cannot be read as a directory ({error.strerror}); choose another"
        ) from error
    if others := {name for name in others if not name.endswith(".part")}:
        raise HoldfastError(
            f"{directory}: holds {quoted(min(others))} and is no memory; choose another directory"
        )
