"""The plain recipe at the paper's scale, timed on parts of a task.

A whole task with its row would take it the better part of a day.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from benchmarks.answering import NO_TOKEN
from benchmarks.device import timed
from benchmarks.twins import GENERATED_AT_ONCE
from holdfast.backbone.model import Backbone
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Sequences
from holdfast.streams import Item
from reference.learner import open_workspace, run_task
from reference.optimisation import optimise
from reference.recall import continuation
from reference.replay import generate
from reference.state import State, Task
from reference.translation import settings_of

_STEPS = 3
_DRAWN = 24  # tokens of the one batch that is drawn
_ASKED = 2  # items


class Recipe:
    """The reference after a first task, one minibatch long: every anchor has a past.

    What it does at the boundary and for its commit is not counted, to its advantage.
    """

    def __init__(self, backbone: Backbone, config: RunConfig) -> None:
        seed = backbone.add_replay_token()
        self._seed = seed
        self._config = config
        self._device = backbone.device
        self._tokenizer = backbone.tokenizer
        self._pad = backbone.pad_token
        self._settings = settings_of(config, backbone.pad_token)
        self._state = State(backbone.model)

    def first_task(self, sequences: Sequences) -> None:
        size = self._config.optim.batch_size
        run_task(self._state, self._settings, Task(sequences, [sequences[:size]]))

    def step(self, sequences: Sequences, replay: Sequences) -> tuple[float, str]:
        """Seconds of one step, its teacher asked, and of how much of a minibatch.

        Where a whole minibatch does not fit into memory, a part of it is timed and scaled.
        """
        size = self._config.optim.batch_size
        for rows in (size, size // 2, size // 4):
            taken = self._steps_or_none(sequences, replay, rows)
            if taken is not None:
                part = "" if rows == size else f", {rows} of {size} sequences at once and scaled"
                return taken * size / rows, f"{_STEPS} steps{part}"
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
        raise torch.OutOfMemoryError("not even a quarter of a minibatch fits")

    def _steps_or_none(self, sequences: Sequences, replay: Sequences, rows: int) -> float | None:
        # What did not fit is held by the error until this returns.
        try:
            return self._steps(sequences, replay, rows)
        except torch.OutOfMemoryError:
            return None

    def _steps(self, sequences: Sequences, replay: Sequences, rows: int) -> float:
        def cut(of: Sequences) -> list[Sequences]:
            starts = range(0, _STEPS * rows, rows)
            return [[of[place % len(of)] for place in range(s, s + rows)] for s in starts]

        task = Task(sequences, cut(sequences), replay_minibatches=cut(replay))
        student = open_workspace(self._state, self._settings, task)
        teacher = copy.deepcopy(student).requires_grad_(False).eval()

        def take(count: int) -> None:
            few = Task(sequences, task.minibatches[:count])
            partners = task.replay_minibatches[:count]
            optimise(student, teacher, partners, self._state, self._settings, few)

        take(1)
        return timed(self._device, lambda: take(_STEPS)) / _STEPS

    def sampling(self) -> tuple[float, str]:
        """Seconds for all replay sequences, and what was timed: the first tokens of one batch.

        Later tokens cost more, as more is remembered, so this is to its advantage too.
        """
        sampling = self._config.sampling
        tokens = min(_DRAWN, sampling.max_new_tokens)
        rows = min(GENERATED_AT_ONCE, sampling.samples)
        self._generate(rows, 2)
        taken = timed(self._device, lambda: self._generate(rows, tokens))
        batches = -(-sampling.samples // GENERATED_AT_ONCE)
        said = f"one of {batches} batches, {tokens} of {sampling.max_new_tokens} tokens"
        return taken / tokens * sampling.max_new_tokens * batches, said

    def row(self, asked: list[Item], answer: int) -> tuple[float, str]:
        """Seconds for one item of the row, generated alone, and what was timed."""
        chosen = asked[:_ASKED]

        def ask(limit: int) -> None:
            for item in chosen:
                model, tokenizer = self._state.backbone, self._tokenizer
                continuation(model, tokenizer, item.question, self._seed, limit)

        ask(2)
        taken = timed(self._device, lambda: ask(answer))
        return taken / len(chosen), f"{len(chosen)} items, {answer} tokens each at most"

    def _generate(self, rows: int, tokens: int) -> Any:
        sampling = self._config.sampling
        return generate(
            self._state.backbone,
            self._seed,
            rows,
            sampling.temperature,
            sampling.top_p,
            tokens,
            NO_TOKEN,
            self._pad,
            GENERATED_AT_ONCE,
            keep_eos=True,
        )
