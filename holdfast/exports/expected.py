"""What an export must reproduce: logits and answers of the model as the trajectory holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.backbone.generation.greedy import decode_greedily
from holdfast.core.seeding import generator
from holdfast.evaluation.boxed import extract_boxed
from holdfast.learning.learner import Learner
from holdfast.streams import Item, Task
from holdfast.streams.batches import newest

FACTS = 16
SEQUENCES = 4
# Asked where the facts that were taught cannot be read.
_MADE_UP = (
    "Who keeps the lighthouse?",
    "Where is the brass key?",
    "What is the ferry called, and when does it leave?",
    "In which year was the bridge of 1,234 stones built?",
)


@dataclass(frozen=True)
class Expected:
    """What the trajectory's own model does, on the CPU.

    questions: texts; prompts, answers: token ids of each; an answer ends where Holdfast stops:
    after a closed box, a stop token, or the longest answer. logits: [length, vocabulary] of the
    first prompts, each with its answer.
    """

    questions: list[str]
    prompts: list[list[int]]
    answers: list[list[int]]
    logits: list[Tensor]

    def sequence(self, index: int) -> list[int]:
        """A prompt with its answer, token ids."""
        return self.prompts[index] + self.answers[index]


def expected(learner: Learner, tasks: Sequence[Task]) -> Expected:
    """Ask a learner at most 16 of the facts of ``tasks``, drawn by its seed; each question once.

    tasks: those that it was taught; made-up questions are asked where there are none.
    """
    backbone, limit = learner.backbone, learner.config.evaluation.max_new_tokens
    items = _sample(newest(tasks), learner)
    prompts = [
        learner.template.encode_prompt(item, backbone.tokenizer, backbone.seed_token)
        for item in items
    ]
    answers = decode_greedily(
        backbone,
        prompts,
        [limit] * len(prompts),
        lambda _, tokens: extract_boxed(backbone.decode(tokens)) is not None,
        tokens_in_cache=learner.config.evaluation.tokens_in_cache,
    )
    found = Expected([item.question for item in items], prompts, answers, [])
    with backbone.answering():
        for index in range(min(SEQUENCES, len(items))):
            ids = torch.tensor([found.sequence(index)], device=backbone.device)
            found.logits.append(backbone.logits(backbone.hidden(ids))[0].cpu())
    return found


def _sample(items: list[Item], learner: Learner) -> list[Item]:
    if not items:
        return [Item(question, "?") for question in _MADE_UP]
    drawn = generator(learner.config.seed, "export", learner.completed)
    order = torch.randperm(len(items), generator=drawn).tolist()
    return [items[index] for index in order[:FACTS]]
