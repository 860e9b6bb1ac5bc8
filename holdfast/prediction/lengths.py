"""How many tasks, items and tokens a run has: of its stream, or assumed."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from holdfast.learning.config import RunConfig
from holdfast.streams import Item, Stream, Template

_READ = 2000  # items whose tokens are counted
_CHARACTERS_A_TOKEN = 3  # assumed where the tokenizer is not here


@dataclass(frozen=True)
class Lengths:
    """Sizes of a stream and of what is sampled.

    items: of the largest task; item, deviation, longest: tokens of a training sequence, mean,
    standard deviation and most; answer: mean tokens of an answer; sample: tokens of a sampled
    sequence with its first; undecided: the share of answers that have to be decoded, each to its
    limit; assumed: what was not read but assumed, in words.
    """

    tasks: int
    items: int
    item: float
    longest: int
    answer: float
    sample: int
    deviation: float = 0.0
    undecided: float = 1.0
    assumed: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: RunConfig, stream: Stream, tokenizer: Any | None) -> Lengths:
        """Of a stream; without a tokenizer, or in a long stream, from fewer items.

        Every sample and every answer that has to be decoded is taken to reach its limit.
        """
        every = [item for task in stream.tasks for item in task.items]
        read = every[:: -(-len(every) // _READ)]
        assumed = []
        if tokenizer is None:
            assumed.append(
                f"a token for every {_CHARACTERS_A_TOKEN} characters, as the tokenizer is not here"
            )
        counts, answers = _tokens(config, read, tokenizer)
        limit = config.template.max_length
        counts = [min(count, limit) for count in counts]
        return cls(
            tasks=len(stream.tasks),
            items=max(len(task.items) for task in stream.tasks),
            item=statistics.fmean(counts),
            longest=max(counts),
            answer=statistics.fmean(answers),
            sample=config.sampling.max_new_tokens + 1,
            deviation=statistics.pstdev(counts),
            assumed=tuple(assumed),
        )

    def rows(self, sequences: int) -> int:
        """Predicting positions of the largest of many minibatches of so many sequences.

        Three standard deviations above the mean, and never more than the longest allows.
        """
        each = min(
            self.longest - 1, self.item - 1 + 3 * self.deviation / math.sqrt(max(1, sequences))
        )
        return math.ceil(sequences * each)


def _tokens(
    config: RunConfig, items: list[Item], tokenizer: Any | None
) -> tuple[list[int], list[int]]:
    """Tokens of each training sequence, and of each answer."""
    template = Template(config.template)
    texts = [[template.text(item), template.prompt(item)] for item in items]
    if tokenizer is None:
        counts = [[-(-len(text) // _CHARACTERS_A_TOKEN) for text in pair] for pair in texts]
    else:
        flat = [text for pair in texts for text in pair]
        ids = tokenizer(flat, add_special_tokens=False)["input_ids"]
        counts = [[len(ids[2 * n]), len(ids[2 * n + 1])] for n in range(len(texts))]
    extra = int(config.has_replay_token) + int(config.template.append_eos)
    return [whole + extra for whole, _ in counts], [max(1, w - p) for w, p in counts]
