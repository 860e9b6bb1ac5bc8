"""What a run does with its stream: sequences, minibatches and samples, and how long they are."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.learning.config import RunConfig
from holdfast.streams import Stream, Template

_READ = 2000  # items whose tokens are counted


class Grid(NamedTuple):
    """Sequences side by side: rows, and the tokens of each with its padding."""

    rows: int
    length: int


@dataclass(frozen=True)
class Workload:
    """tasks: of the stream; items: of its largest task; lengths: tokens of training sequences in
    ascending order; mean: of them; answer: mean tokens of an answer.
    """

    config: RunConfig
    tasks: int
    items: int
    lengths: tuple[int, ...]
    mean: float
    answer: float

    @classmethod
    def of(cls, config: RunConfig, stream: Stream, tokenizer: Any) -> Workload:
        """Of a stream, or of as many of its items as are enough."""
        every = [item for task in stream.tasks for item in task.items]
        read, template = every[:: -(-len(every) // _READ)], Template(config.template)
        extra = int(config.has_replay_token) + int(config.template.append_eos)
        whole, asked = (
            [len(ids) + extra for ids in tokenizer(some, add_special_tokens=False)["input_ids"]]
            for some in ([*map(template.text, read)], [*map(template.prompt, read)])
        )
        return cls(
            config=config,
            tasks=len(stream.tasks),
            items=max(len(task.items) for task in stream.tasks),
            lengths=tuple(sorted(min(count, config.template.max_length) for count in whole)),
            mean=statistics.fmean(whole),
            answer=statistics.fmean(whole) - statistics.fmean(asked),
        )

    def needs(self, what: str) -> int:
        """What an anchor of the method needs most, by the name of a field of ``Needs``."""
        return max([int(getattr(one.needs, what)) for one in self.config.anchors()], default=0)

    @property
    def kfac(self) -> bool:
        """Whether S and G are taken."""
        return "kfac" in self.config.composition.anchors

    @property
    def positions(self) -> int:
        """Positions that the paired curvature anchor keeps."""
        config = self.config
        if "pairs" not in config.composition.anchors:
            return 0
        return config.pairs.positions + config.pairs.general * bool(config.sampling.general)

    @property
    def writes(self) -> int:
        """Sequences that are sampled before every task but the first, each taken to be whole."""
        own = self.needs("curvature") or (self.needs("replay") and not self.needs("stored"))
        return self.config.sampling.samples * own + self.config.sampling.general * (
            self.kfac or bool(self.positions)
        )

    @property
    def replayed(self) -> Grid:
        """All sequences that a task replays."""
        if stored := self.needs("stored"):
            return Grid(stored, round(self.mean))
        return Grid(
            self.config.sampling.samples * self.needs("replay"),
            self.config.sampling.max_new_tokens + 1,
        )

    @property
    def asks(self) -> int:
        """Tokens of which the previous model's states are kept: what is replayed and distilled."""
        own = round(self.items * self.mean) * self.needs("teacher")
        return self.replayed.rows * self.replayed.length + own

    def minibatch(self, rows: int) -> list[Grid]:
        """Of so many sequences, their lengths evenly spread over the stream's, padded to the
        longest; and what is replayed beside them.
        """
        place = int((rows - 0.5) / rows * len(self.lengths))
        beside = min(rows, self.replayed.rows) * self.config.replay.minibatches_per_step
        grids = [Grid(rows, self.lengths[place]), Grid(beside, self.replayed.length)]
        return [one for one in grids if one.rows]

    def minibatches(self, task: int) -> int:
        """Of a whole task, which joint training takes together with all before it."""
        items = self.items * (task if self.needs("joint") else 1)
        return self.config.optim.epochs_of(items) * -(-items // self.config.optim.batch_size)

    @property
    def rows(self) -> int:
        """Sequences of a minibatch."""
        return min(self.config.optim.batch_size, self.items)

    @property
    def verified(self) -> Grid:
        """The questions that one pass of the evaluation verifies."""
        at_once = max(1, self.config.evaluation.tokens_per_batch // self.lengths[-1])
        return Grid(min(at_once, self.tasks * self.items), self.lengths[-1])

    @property
    def asked(self) -> int:
        """How many tasks are asked in all rows together, without those before they are learned."""
        rows = self.config.evaluation.rows
        if rows == "horizon":
            return self.tasks
        every = 1 if rows == "every" else int(rows)
        whole: set[int] = {*range(every, self.tasks + 1, every), self.tasks}
        return sum(whole) + self.tasks - len(whole)
