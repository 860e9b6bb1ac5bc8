"""A memory: a model, the lessons that it learned, and its list of facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.builders.paraphrases import Paraphraser, Rules
from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError, described
from holdfast.core.files import FOR_EVER, MOMENT, lock_directory
from holdfast.core.notebook import caption
from holdfast.core.reporting import NoteReport, WorkReport, silent
from holdfast.core.seeding import derive
from holdfast.memory.answering import Answer, Answerer
from holdfast.memory.batch import learn_batch
from holdfast.memory.engine import Engine, Limits, limits_of
from holdfast.memory.facts import Facts, frame_of, html_of, stream_from
from holdfast.memory.plan import Filed, LessonOutcome, Plan, contradictions, outcome_of, plan
from holdfast.memory.record import (
    PARTS,
    Record,
    check_free,
    check_list,
    finish_forgetting,
    is_memory,
    list_of,
    read_memory,
    remove_leftovers,
    signatures,
    write_record,
)
from holdfast.memory.states import LessonCancelledError, LessonProgress, ListedLesson
from holdfast.memory.wordings import with_wordings
from holdfast.memory.words import nearest
from holdfast.model.chat import chat_form
from holdfast.model.load import read_config, read_tokenizer
from holdfast.model.sources.fetch import fetch, lasting_name
from holdfast.streams import Item, Stream, Task
from holdfast.streams.batches import (
    FACTS_FILE,
    fact_key,
    latest,
    newest,
    read_batches,
    write_batches,
)
from holdfast.streams.item import counted

if TYPE_CHECKING:
    import pandas as pd


class Memory:
    """A model and the facts that it was taught, in one directory. Not thread-safe.

    The model stays loaded between calls. The untouched model answers what was not taught.
    record: what is committed; tasks: the batches on file, of which the first :attr:`horizon` are
    learned.
    """

    def __init__(self, directory: str | Path, model: str = "smollm2", seed: int = 0) -> None:
        """Open a memory, or prepare a new one; nothing is written before facts are taught.

        model, seed: of a new memory; an existing one has its own.
        Raises HoldfastError if the directory holds something else or is damaged.
        """
        self.directory = Path(directory)
        self.record = Record(lasting_name(model), "", seed, ())
        self.tasks: tuple[Task, ...] = ()
        self._engine: Engine | None = None
        self._limits: Limits | None = None
        self._answerer: Answerer | None = None
        self._seen: tuple[object, ...] = ()
        if is_memory(self.directory):
            self._read()
        else:
            check_free(self.directory)
            self.tasks = read_batches(self.directory / FACTS_FILE)

    @property
    def horizon(self) -> int:
        """The number of learned lessons."""
        return len(self.record.lessons)

    @property
    def model(self) -> str:
        """The model's name, or its absolute path."""
        return self.record.model

    @property
    def seed(self) -> int:
        """The seed of all random numbers."""
        return self.record.seed

    @property
    def facts(self) -> tuple[Item, ...]:
        """All facts on file, each question once, with its newest answer."""
        return tuple(newest(self.tasks))

    @property
    def learned(self) -> tuple[Item, ...]:
        """All facts of the learned lessons, each question once, with its newest learned answer."""
        return tuple(newest(self.tasks[: self.horizon]))

    def to_frame(self) -> pd.DataFrame:
        """A data frame with one row per fact: ``batch``, ``question``, ``answer``, ``aliases``."""
        return frame_of(self.tasks)

    def __repr__(self) -> str:
        counts = f"{counted(len(self.facts), 'fact')} in {counted(self.horizon, 'lesson')}"
        return f"Memory({str(self.directory)!r}, {counts}, {self.model})"

    def _repr_html_(self) -> str:
        return caption(repr(self)) + html_of(self.facts)

    def _read(self) -> bool:
        """Read what is committed and what waits; return whether it has changed."""
        if signatures(self.directory) == self._seen:
            return False
        record, tasks, seen = read_memory(self.directory)
        check_list(self.directory, tasks, record)
        answerer = self._answerer
        if answerer is not None and (record, tasks) != (self.record, self.tasks):
            # Made before anything is assigned, so that a damaged lesson changes nothing.
            answerer = Answerer(self.engine(), self.directory, record, tasks)
        self.record, self.tasks, self._answerer, self._seen = record, tasks, answerer, seen
        return True

    def refresh(self) -> bool:
        """Read what another process has written since; return whether there is anything new.

        If that is damaged, raises HoldfastError, and this memory answers as before.
        """
        return is_memory(self.directory) and self._read()

    @property
    def fingerprint(self) -> str:
        """sha256 over the model, the lessons and their facts."""
        facts = [[task.name, task.fingerprint] for task in self.tasks[: self.horizon]]
        committed = {**asdict(self.record), "forgotten": ()}
        for part in ("consolidated", "former"):  # as what is forgotten, these change no answer
            del committed[part]
        return sha256_of([committed, facts])

    def limits(self) -> Limits:
        """How long questions and answers may be. Loads only the tokenizer and the configuration."""
        if self._limits is None:
            directory = fetch(self.model)
            self._limits = limits_of(chat_form(read_tokenizer(directory)), read_config(directory))
        return self._limits

    def engine(self, report: WorkReport = silent) -> Engine:
        """The loaded model. Raises HoldfastError if it is missing or not the one taught before."""
        if self._engine is None:
            engine = Engine(fetch(self.model), partial(report, "preparing"))
            self._check_model(engine)
            self._engine, self._limits = engine, engine.limits
        return self._engine

    def _check_model(self, engine: Engine) -> None:
        if self.record.fingerprint not in ("", engine.fingerprint):
            raise HoldfastError(
                f"{self.directory}: was taught to another model than the {self.model} that is "
                "here now; fetch that one again, or teach the facts of facts.jsonl to a new memory"
            )

    def load(self) -> None:
        """Load the model now. Raises as :meth:`engine`."""
        self.engine()

    def plan(self, facts: Facts | None = None, *, again: bool = False) -> Plan:
        """What :meth:`learn` would put on file. Writes nothing; raises for invalid facts."""
        return self._plan(None if facts is None else self.worded(facts), again)

    def _plan(self, stream: Stream | None, again: bool) -> Plan:
        return plan(self.tasks, self.horizon, stream, self.missed() if again else ())

    def missed(self) -> tuple[Item, ...]:
        """The facts whose answers the weights did not give at the end of their last lesson."""
        learned = self.tasks[: self.horizon]
        last: dict[str, bool] = {}
        for task, lesson in zip(learned, self.record.lessons, strict=True):
            last |= {fact_key(item): False for item in task.items}
            last |= dict.fromkeys(lesson.missed, True)
        return tuple(item for item in newest(learned) if last[fact_key(item)])

    def worded(
        self,
        facts: Facts,
        count: int = 0,
        paraphraser: Paraphraser | None = None,
        report: NoteReport = silent,
    ) -> Stream:
        """The facts with their given wordings, filled up to ``count`` each by the paraphraser."""
        on_file = list(latest(self.tasks).values())
        return with_wordings(stream_from(facts), count, paraphraser or Rules(), report, on_file)

    def write_facts(self, facts: Facts | None = None, *, again: bool = False) -> Filed:
        """Put facts on file for the next :meth:`learn`, or for one that runs now.

        facts, again: as for :meth:`learn`. Does not load the model or wait for a running lesson.
        Raises HoldfastError for a fact that is invalid or too long, and if nothing is on file.
        """
        stream, first = self._first_plan(facts, again)
        self._check(first)
        notices = contradictions(self.taken_for, first) if self._engine else ()
        with list_of(self.directory):
            decided = self._put_on_file(stream, again=again)
        keys = None if stream is None else latest(stream.tasks).keys()
        numbers = tuple(
            number
            for number, task in enumerate(self.tasks, start=1)
            if number > self.horizon and (keys is None or not keys.isdisjoint(latest([task])))
        )
        notices += decided.notices
        return Filed(numbers, decided.repeated, decided.corrected, notices)

    def learn(
        self,
        facts: Facts | None = None,
        *,
        again: bool = False,
        wait: bool = False,
        report: WorkReport = silent,
    ) -> LessonOutcome:
        """Learn the facts on file that are not learned yet, then these; each task is one lesson.

        facts: what :func:`holdfast.load_stream` takes, a stream, or ``-`` for JSON lines from
        standard input; None for those on file alone. again: learn once more all
        :meth:`missed` facts, or those among ``facts``. wait: for another process that learns here.
        report(what, done, total): facts. What others put on file meanwhile is learned too. A killed
        process loses at most the lesson in progress; the same call continues.
        Raises HoldfastError for a fact that is invalid or too long (nothing is changed then), if
        another process learns here, and if the disk is full.
        """
        stream, first = self._first_plan(facts, again)
        if len(first.tasks) == self.horizon:
            return outcome_of((), self.facts, self.missed(), first)
        if not wait:
            self.engine(report)  # raises before anything is written
        self._check(first)
        notices = contradictions(self.taken_for, first) if self._engine else ()
        with lock_directory(self.directory, patience=FOR_EVER if wait else MOMENT, parts=PARTS):
            with list_of(self.directory):
                remove_leftovers(self.directory)
                self.refresh()
                if self._engine is not None:
                    self._check_model(self._engine)  # another process may have created the memory
                decided = self._put_on_file(stream, again=again)
            begin = self.horizon
            self._learn_waiting(report)
        decided = replace(decided, notices=(*notices, *decided.notices))
        return outcome_of(self.tasks[begin : self.horizon], self.facts, self.missed(), decided)

    def _first_plan(self, facts: Facts | None, again: bool) -> tuple[Stream | None, Plan]:
        """The given facts with their wordings, and the plan for them before the list is locked."""
        if self._seen and not is_memory(self.directory):
            raise HoldfastError(
                f"{self.directory}: was moved or removed since it was opened; open it where it is"
            )
        self.refresh()
        stream = None if facts is None else self.worded(facts)
        first = self._plan(stream, again)
        if not first.tasks:
            raise self._empty()
        return stream, first

    def _check(self, decided: Plan) -> None:
        """Raise HoldfastError if facts that are not learned yet cannot be learned."""
        for task in decided.tasks[self.horizon :]:
            for item in task.items:
                self.limits().check_fact(item.question, item.answer)

    def _put_on_file(self, stream: Stream | None, *, again: bool) -> Plan:
        """Add facts to the locked list, after those that other processes have added."""
        if not is_memory(self.directory):
            write_record(self.directory, self.record)
        finish_forgetting(self.directory)
        self._read()
        decided = self._plan(stream, again)
        if len(decided.tasks) > decided.on_file:
            write_batches(self.directory / FACTS_FILE, decided.tasks)
            self.tasks, self._answerer = decided.tasks, None
        return decided

    def _learn_waiting(self, report: WorkReport) -> None:
        """Learn what is on file, and what other processes add to it meanwhile."""
        progress = LessonProgress(self.directory)
        while self.horizon < len(self.tasks):
            progress.begin(self.horizon + 1)
            try:
                self._learn_task(self.tasks[self.horizon], report, progress)
            except LessonCancelledError:
                pass  # go on with the rest of the list
            except HoldfastError as error:
                progress.failed(str(error), error.code)
                raise
            except Exception as error:
                progress.failed(described(error))
                raise
            self._read()
        progress.done()

    def _learn_task(self, task: Task, report: WorkReport, progress: LessonProgress) -> None:
        """Learn one task and commit it."""
        number = self.horizon + 1
        engine = self.engine(report)
        listed = ListedLesson(self.directory, number, task)

        def after_step(what: str, done: int, total: int) -> None:
            listed.check()
            progress.step(done)
            report(what, done, total)

        seed = derive(self.seed, "lesson", number)
        batch = learn_batch(engine, number, task, seed, after_step)
        lessons = (*self.record.lessons, batch.lesson)
        record = replace(self.record, lessons=lessons, fingerprint=engine.fingerprint)
        listed.check()  # before the list is locked, which would create a moved directory again
        # Checked before the commit: a list that was edited meanwhile must not damage the memory.
        with list_of(self.directory):
            listed.check()
            check_list(self.directory, read_batches(self.directory / FACTS_FILE), record)
            batch.write(self.directory, engine.tuning.key)
            write_record(self.directory, record)
        self.record, self._answerer = record, None

    def ask(self, question: str) -> str:
        """The answer to a question; :meth:`reply` also says where it comes from."""
        return self.reply(question).text

    def reply(self, question: str) -> Answer:
        """The answer to a question and where it comes from."""
        return self.replies([question])[0]

    def replies(self, questions: Sequence[str]) -> list[Answer]:
        """The answers to several questions; writes nothing.

        Raises HoldfastError if nothing is on file, and for a question that is empty or too long.
        """
        self.check_facts()
        try:
            return self.answerer().replies(questions)
        except HoldfastError:
            if not self.refresh():  # else another process has replaced a lesson
                raise
            return self.answerer().replies(questions)

    def check_facts(self) -> None:
        """Raise HoldfastError if no fact is on file."""
        if not self.tasks:
            raise self._empty()

    def taken_for(self, questions: Sequence[str]) -> list[Item | None]:
        """The fact on file that the memory takes each question for; None for none.

        All None if a lesson is damaged: asking will report that, and teaching goes on.
        """
        try:
            answers = self.answerer().taught(questions)
        except HoldfastError:
            return [None] * len(questions)
        return [answer.fact if isinstance(answer, Answer) else None for answer in answers]

    def answerer(self) -> Answerer:
        """Answers from all lessons so far, and from the list for facts that wait to be learned."""
        if self._answerer is None:
            self._answerer = Answerer(self.engine(), self.directory, self.record, self.tasks)
        return self._answerer

    def learned_answerer(self) -> Answerer:
        """Answers questions about learned facts alone. Raises HoldfastError if there are none."""
        if not self.horizon:
            raise self._empty()
        if self.horizon == len(self.tasks):
            return self.answerer()
        learned = self.tasks[: self.horizon]
        return Answerer(self.engine(), self.directory, self.record, learned)

    def nearest(self, question: str, most: int = 3) -> list[str]:
        """The ``most`` questions on file that share most words with this one, perhaps fewer."""
        return nearest(question, [item.question for item in self.facts], most)

    def _empty(self) -> HoldfastError:
        state = "has learned nothing yet" if self.directory.exists() else "no such memory"
        return HoldfastError(
            f"{self.directory}: {state}; holdfast learn {self.directory} FACTS teaches it"
        )
