"""One lesson: a small adapter learns facts in several wordings until each answer has a margin.

The untouched model reads the questions once; each training step runs over the answers alone. A
lesson starts from the untouched model, so it does not change earlier lessons.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from holdfast.core.reporting import CountReport, silent
from holdfast.core.seeding import derive, generator
from holdfast.model.adapter import (
    AdapterShape,
    State,
    adapted,
    factors,
    load_state,
    reset,
    shape_on,
    state_of,
)
from holdfast.model.reading import PromptReader, Reading


@dataclass(frozen=True)
class LessonSettings:
    """How a lesson is learned.

    start: the fraction of the decoder's layers, from the first, that get no adapter; rank, alpha:
    of the adapter; lr: AdamW's; facts: most facts in a step; varied: the probability that a step
    takes another wording than the taught question; margin: a fact counts as learned if every answer
    token leads all others by this, in nats; steps: after so many passes a fact only fills up steps;
    visits: fewest passes over a fact; long: an answer of so many tokens and more weighs by their
    number, so that each token weighs as one of so many.
    """

    start: float = 0.53
    rank: int = 12  # 3.7 MB a lesson of SmolLM2-135M
    alpha: int = 24
    lr: float = 2e-3
    facts: int = 24
    varied: float = 0.7
    margin: float = 3.0
    steps: int = 60
    visits: int = 8
    long: int = 16

    @property
    def scale(self) -> float:
        """alpha / r, the same for all adapters of a memory."""
        return self.alpha / self.rank


@dataclass(frozen=True)
class Taught:
    """A fact as its answer's tokens, and readings of its wordings, the taught question first."""

    answer: tuple[int, ...]
    readings: tuple[Reading, ...]


def shape_for(reader: PromptReader, settings: LessonSettings) -> AdapterShape:
    """The shape of a lesson's adapter: on all linear maps of the upper layers."""
    count = reader.model.config.get_text_config().num_hidden_layers
    return shape_on(reader.model, int(count * settings.start), settings.rank, settings.alpha)


def learn_lesson(
    reader: PromptReader,
    taught: Sequence[Taught],
    settings: LessonSettings,
    seed: int,
    report: CountReport = silent,
) -> tuple[State, list[bool]]:
    """Train the attached adapter on facts; return its factors in bfloat16, and :func:`answered`.

    The adapter begins anew. report(learned, facts) is called after every step.
    """
    reset(reader.model, generator(seed, "lora_A"))
    draw = random.Random(derive(seed, "lesson"))
    passes = [0] * len(taught)
    learned = [False] * len(taught)
    with adapted(reader.model):
        parameters = list(factors(reader.model).values())
        optimizer = torch.optim.AdamW(parameters, lr=settings.lr, weight_decay=0.0)
        while places := _next(passes, learned, settings, draw) or _unsure(
            reader, taught, passes, settings
        ):
            readings = [_drawn(taught[place], settings, draw) for place in places]
            answers = [taught[place].answer for place in places]
            logits = reader.answer_logits(readings, answers)
            losses = logits.losses()
            weights = [max(1.0, len(answer) / settings.long) for answer in answers]
            loss = (losses * losses.new_tensor(weights)).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            for place, margin in zip(places, logits.margins().tolist(), strict=True):
                passes[place] += 1
                learned[place] = margin >= settings.margin
            report(sum(learned), len(taught))
    state = state_of(reader.model, torch.bfloat16)
    load_state(reader.model, state)
    return state, answered(reader, taught)


def _next(
    passes: list[int], learned: list[bool], settings: LessonSettings, draw: random.Random
) -> list[int]:
    """The facts of the next step: some that need it, filled up with others; empty if none does."""
    needing = [
        place
        for place, (count, is_learned) in enumerate(zip(passes, learned, strict=True))
        if count < settings.steps and (count < settings.visits or not is_learned)
    ]
    if not needing:
        return []
    draw.shuffle(needing)
    chosen = needing[: settings.facts]
    others = [place for place in range(len(passes)) if place not in set(chosen)]
    return chosen + draw.sample(others, min(len(others), settings.facts - len(chosen)))


def _unsure(
    reader: PromptReader, taught: Sequence[Taught], passes: list[int], settings: LessonSettings
) -> list[int]:
    """Facts for one more step: the taught question lacks the margin that another wording had."""
    margins = _margins(reader, taught)
    unsure = [
        place
        for place, (count, margin) in enumerate(zip(passes, margins, strict=True))
        if count < settings.steps and margin < settings.margin
    ]
    return unsure[: settings.facts]


def _drawn(fact: Taught, settings: LessonSettings, draw: random.Random) -> Reading:
    if len(fact.readings) > 1 and draw.random() < settings.varied:
        return draw.choice(fact.readings[1:])
    return fact.readings[0]


def answered(reader: PromptReader, taught: Sequence[Taught]) -> list[bool]:
    """Whether greedy decoding from each fact's taught question gives its answer and stops."""
    with adapted(reader.model):
        return [margin > 0 for margin in _margins(reader, taught)]


def _margins(reader: PromptReader, taught: Sequence[Taught]) -> list[float]:
    return reader.margins([fact.readings[0] for fact in taught], [fact.answer for fact in taught])
