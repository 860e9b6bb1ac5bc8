"""Fill a collection: first from the replies on disk, then from new ones."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.paper.llm_qa.collection import Collection, Verdict
from experiments.paper.llm_qa.journal import Journal, Line
from experiments.paper.llm_qa.prompt import Request
from experiments.paper.llm_qa.writers import Writer
from holdfast.builders.text_model import Failure
from holdfast.core.errors import HoldfastError
from holdfast.core.reporting import NoteReport
from holdfast.streams.item import Item, quoted

Known = Callable[[list[Item]], list[Verdict]]

NAMED = 3  # how many short tasks, and how many reasons, an error names


@dataclass
class Filling:
    """Fills a collection from its journal, then by sending a writer at most ``budget`` prompts.

    report, known: as in :func:`experiments.paper.llm_qa.generate`.
    """

    collection: Collection
    journal: Journal
    writer: Writer
    budget: int
    report: NoteReport | None
    known: Known | None

    def fill(self) -> None:
        """Fill every task. Raises HoldfastError when the budget is spent first."""
        lines = enumerate(self.journal.read(), start=1)
        prompts_left = self.budget
        while self.collection.short():
            requests = self.collection.plan_round()
            replayed = list(itertools.islice(lines, len(requests)))
            for request, (number, line) in zip(requests, replayed, strict=False):
                self._replay(request, number, line)
            if replayed:
                self._tell()
            for batch in _batches(requests[len(replayed) :], self.writer.batch, prompts_left):
                self._ask(batch)
                prompts_left -= len(batch)
                self._tell()
            if self.collection.round_is_open:
                raise self._spent()
        surplus = next(lines, None)
        if surplus is not None:
            raise self._foreign(surplus[0], "no other reply was due")

    def _replay(self, request: Request, number: int, line: Line) -> None:
        if (line.task, line.number) != (request.task, request.number):
            raise self._foreign(
                number,
                f"holds task {line.task} number {line.number}, but task {request.task} number "
                f"{request.number} was due",
            )
        items = self.collection.read(request, line.reply)
        verdicts: Sequence[Verdict] = [False] * len(items)
        if self.known is not None:
            verdicts = line.verdicts or ()
        if len(verdicts) != len(items):
            raise self._foreign(number, f"decides on {len(verdicts)} items, not on {len(items)}")
        self.collection.keep(request, items, verdicts)

    def _ask(self, batch: Sequence[Request]) -> None:
        replies: dict[int, str | Failure] = {}
        try:
            replies.update(self.writer.write(batch))
        except BaseException:
            # Keep the replies that arrived; the journal is in the order of the requests, so those
            # after the first missing one are lost.
            came = next(place for place in itertools.count() if place not in replies)
            self._take(batch[:came], replies)
            raise
        assert sorted(replies) == list(range(len(batch))), "a writer replies once to each request"
        self._take(batch, replies)

    def _take(self, batch: Sequence[Request], replies: Mapping[int, str | Failure]) -> None:
        """Read, filter and record the replies to a batch. replies: by place in the batch."""
        if not batch:
            return
        brought = [
            self.collection.read(request, replies[place]) for place, request in enumerate(batch)
        ]
        verdicts = iter(self._verdicts([item for items in brought for item in items]))
        lines = []
        for place, (request, items) in enumerate(zip(batch, brought, strict=True)):
            decided = tuple(itertools.islice(verdicts, len(items)))
            self.collection.keep(request, items, decided)
            recorded = decided if self.known is not None else None
            lines.append(Line(request.task, request.number, replies[place], recorded))
        self.journal.append(lines)

    def _verdicts(self, items: list[Item]) -> Sequence[Verdict]:
        if self.known is None or not items:
            return [False] * len(items)
        verdicts = self.known(items)
        assert len(verdicts) == len(items), "a novelty filter decides on every item"
        return verdicts

    def _tell(self) -> None:
        if self.report is not None:
            wanted = self.collection.items * len(self.collection.tasks)
            self.report(self.collection.accepted, wanted, f"prompt {self.collection.prompts}")

    def _spent(self) -> HoldfastError:
        short = self.collection.short()
        counts = ", ".join(
            f"{quoted(self.collection.topics[place].phrase)} has "
            f"{len(self.collection.tasks[place])}"
            for place in short[:NAMED]
        )
        more = ", ..." if len(short) > NAMED else ""
        reasons = Counter(self.collection.rejected) + Counter(self.collection.failed)
        worst = ", ".join(f"{reason} ({count})" for reason, count in reasons.most_common(NAMED))
        lost = f"; lost most to: {worst}" if worst else ""
        return HoldfastError(
            f"{self.journal.path.parent}: the budget of prompts ({self.budget}) is spent, but "
            f"{len(short)} of {len(self.collection.tasks)} tasks are short of "
            f"{self.collection.items} items "
            f"({counts}{more}){lost}; run the same command again to go on, or raise the budget"
        )

    def _foreign(self, number: int, reason: str) -> HoldfastError:
        return HoldfastError(
            f"{self.journal.path} line {number}: {reason}; the file was changed, or written by "
            "another version: choose another directory"
        )


def _batches(requests: Sequence[Request], size: int, budget: int) -> Iterator[Sequence[Request]]:
    """The first ``budget`` requests, in batches of at most ``size``."""
    affordable = requests[:budget]
    for start in range(0, len(affordable), size):
        yield affordable[start : start + size]
