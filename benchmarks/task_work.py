"""What the phases of a task need, put together from the passes of :mod:`benchmarks.counting`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from benchmarks.counting import Shape, Work
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, Sequences
from holdfast.streams import Item


def sampling(shape: Shape, drawn: Sequences) -> list[Work]:
    """One decoding step a position, for the sequences that have not stopped."""
    return [
        shape.decode(sum(len(one) > position for one in drawn), position)
        for position in range(max(map(len, drawn)))
    ]


def teacher(shape: Shape, sequences: Sequences) -> list[Work]:
    """The previous model's states; it has just been merged, or a branch of zeros is left out."""
    return [shape.forward(_rows(sequences), 0, branch=False)]


def step(shape: Shape, anchors: Sequence[str], current: Sequences, replay: Sequences) -> list[Work]:
    """One optimiser step on a minibatch; the teacher's states are known, its logits are not."""
    ours, theirs = _rows(current), _rows(replay)
    predicted, replayed = sum(ours), sum(theirs)
    works = [
        shape.forward(ours + theirs, predicted + replayed, branch=True),
        shape.backward(ours + theirs, predicted + replayed),
        shape.project(replayed + (predicted if "sd" in anchors else 0)),
        replace(shape, scalar=4).update(),
    ]
    if {"si", "sd"} <= set(anchors):
        # The path of SI leaves distillation out: a second gradient, of the current data.
        works.append(shape.backward(ours, predicted))
    return works


def learning(
    shape: Shape, config: RunConfig, sequences: Sequences, replay: Sequences
) -> list[Work]:
    """A task but for its boundary: sampling, teacher and every step.

    replay: what the previous model wrote, with the seed token; empty where nothing is replayed.
    Minibatches are taken in order: which sequences meet hardly changes the sum.
    """
    anchors, size = config.composition.anchors, config.optim.batch_size
    works = sampling(shape, [one[1:] for one in replay]) if replay else []
    asked = [*replay, *(sequences if "sd" in anchors else [])]
    works += teacher(shape, asked) if asked else []
    current, partners = _minibatches(sequences, size), _minibatches(replay, size) or [[]]
    for number in range(config.optim.epochs * len(current)):
        place = number % len(current)  # every epoch begins the replay anew
        works += step(shape, anchors, current[place], partners[place % len(partners)])
    return works


def row(shape: Shape, learner: Learner, questions: Iterable[Item]) -> list[Work]:
    """One pass over every prompt and answer; only the answers' positions are projected."""
    template, tokenize = learner.template, learner.backbone.tokenize
    lengths, answers = [], 0
    for item in questions:
        whole = len(tokenize(template.text(item)))
        answers += whole - len(tokenize(template.prompt(item)))
        lengths.append(whole)
    return [shape.forward(lengths, answers, branch=False)]


def _minibatches(sequences: Sequences, size: int) -> list[Sequences]:
    return [sequences[start : start + size] for start in range(0, len(sequences), size)]


def _rows(sequences: Sequences) -> list[int]:
    """Of each sequence what a model reads: the last token predicts nothing."""
    return [len(one) - 1 for one in sequences]
