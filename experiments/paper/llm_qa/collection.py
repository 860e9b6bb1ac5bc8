"""Collect items from replies, and plan the next requests from the replies alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.paper.llm_qa.prompt import Request, Topic
from experiments.paper.llm_qa.replies import read_candidates
from experiments.paper.llm_qa.validator import Validator
from holdfast.builders.text_model import Failure
from holdfast.streams.item import Item

Verdict = bool | Failure  # whether the backbone knows an item, or why that could not be decided


class Collection:
    """The items of every task, in the order of their replies.

    Requests come in rounds. A round is planned from the items that each task lacks when it begins,
    and during the round no task takes more than it lacked. So neither the batch size nor an
    interruption within a round changes which requests are made and which items are taken.

    items: how many each task takes. tasks: the items taken; prompts: how many requests have been
    answered or have failed; rejected, failed: counts of rejected candidates and failed prompts, by
    reason. A reply without candidates, or one cut off in a candidate, counts as one rejection.
    """

    def __init__(self, topics: Sequence[Topic], items: int, per_prompt: int, seed: int) -> None:
        self.topics = topics
        self.items = items
        self.tasks: list[list[Item]] = [[] for _ in topics]
        self.prompts = 0
        self.rejected: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._per_prompt, self._seed = per_prompt, seed
        self._asked = [0] * len(topics)
        self._room = [0] * len(topics)
        self._validator = Validator()

    @property
    def accepted(self) -> int:
        """How many items all tasks hold."""
        return sum(map(len, self.tasks))

    @property
    def round_is_open(self) -> bool:
        """Whether a request of a planned round has no reply yet."""
        return self.prompts < sum(self._asked)

    def short(self) -> list[int]:
        """The indices of the tasks that are not full, from 0."""
        return [place for place, items in enumerate(self.tasks) if len(items) < self.items]

    def plan_round(self) -> list[Request]:
        """The next requests: the fewest that could fill every task, taking the tasks in turn."""
        self._room = [self.items - len(items) for items in self.tasks]
        needed = [-(-room // self._per_prompt) for room in self._room]
        requests = []
        for lap in range(max(needed)):
            for place, topic in enumerate(self.topics):
                if lap < needed[place]:
                    self._asked[place] += 1
                    number = self._asked[place]
                    requests.append(Request(place + 1, topic, number, self._per_prompt, self._seed))
        return requests

    def read(self, request: Request, reply: str | Failure) -> list[Item]:
        """The valid items of a reply, as far as its task has room for them."""
        self.prompts += 1
        if isinstance(reply, Failure):
            self.failed[reply.reason] += 1
            return []
        candidates, problem = read_candidates(reply)
        if problem is not None:
            self.rejected[problem] += 1
        place = request.task - 1
        items = []
        for candidate in candidates:
            if self._room[place] == 0:
                self.rejected["task is full"] += 1
                continue
            outcome = self._validator.accept(candidate, request.topic.phrase)
            if isinstance(outcome, Item):
                self._room[place] -= 1
                items.append(outcome)
            else:
                self.rejected[outcome] += 1
        return items

    def keep(self, request: Request, items: Sequence[Item], verdicts: Sequence[Verdict]) -> None:
        """Take the items that :meth:`read` returned, except those known or undecided."""
        for item, verdict in zip(items, verdicts, strict=True):
            if isinstance(verdict, Failure):
                self.rejected["novelty not decided"] += 1
            elif verdict:
                self.rejected["known to the backbone"] += 1
            else:
                self.tasks[request.task - 1].append(item)

    def counts(self) -> dict[str, Any]:
        """Counts of prompts, and of accepted, rejected and failed ones, as JSON values."""
        return {
            "prompts": self.prompts,
            "accepted": self.accepted,
            "rejected": dict(sorted(self.rejected.items())),
            "failed": dict(sorted(self.failed.items())),
        }
