"""The operations and bytes of the phases of a task, from the passes of :class:`Shape`.

Sequences are tokens; where nothing is encoded yet any of the right length do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.learning.config import RunConfig
from holdfast.prediction.shape import Shape, Work

Sequences = Sequence[Sequence[int]]


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
    if "kfac" in anchors:
        works.append(term(shape))
    return works


def steps(
    shape: Shape,
    config: RunConfig,
    sequences: Sequences,
    replay: Sequences,
    anchors: Sequence[str],
) -> list[Work]:
    """Every step of a task; anchors: those that have a past.

    Minibatches are taken in order: which sequences meet hardly changes the sum.
    """
    size = config.optim.batch_size
    current, partners = _minibatches(sequences, size), _minibatches(replay, size) or [[]]
    works = []
    for number in range(config.optim.epochs_of(len(sequences)) * len(current)):
        place = number % len(current)  # every epoch begins the replay anew
        works += step(shape, anchors, current[place], partners[place % len(partners)])
    return works


def learning(
    shape: Shape, config: RunConfig, sequences: Sequences, replay: Sequences
) -> list[Work]:
    """A task but for its boundary: sampling, teacher and every step.

    replay: what the previous model wrote, with the seed token; empty where nothing is replayed.
    """
    works = sampling(shape, [one[1:] for one in replay]) if replay else []
    asked = [*replay, *(sequences if "sd" in config.composition.anchors else [])]
    works += teacher(shape, asked) if asked else []
    return works + steps(shape, config, sequences, replay, config.composition.anchors)


def row(shape: Shape, lengths: Sequence[int], answers: int) -> list[Work]:
    """One pass over every prompt and answer; only the answers' positions are projected.

    lengths: tokens of each prompt with its answer; answers: tokens of all answers.
    """
    return [shape.forward(lengths, answers, branch=False)]


def fisher_pass(shape: Shape, sequences: Sequences) -> list[Work]:
    """There and back without the factors' gradients, and the outer products of S and G.

    Maps that read one tensor share their S.
    """
    rows = _rows(sequences)
    tokens = sum(rows)
    frozen = replace(shape, rank=0)
    squares = sum(d_in**2 + sum(one**2 for one in widths) for d_in, widths in shape.readers())
    return [
        frozen.forward(rows, tokens, branch=False),
        frozen.backward(rows, tokens),
        Work(2 * tokens * shape.layers * squares, shape.scalar * shape.layers * squares),
    ]


def term(shape: Shape) -> Work:
    """The quadratic form of ``kfac`` with its gradient, S and G being dense.

    ``G B`` and ``A S``, and the products of the rank's size that follow, there and back.
    """
    rank, flops, read = shape.rank, 0, 0
    for d_in, d_out in (shape.maps[name] for name in shape.adapted):
        flops += 2 * rank * (d_in**2 + d_out**2) + 4 * rank**2 * (d_in + d_out)
        read += d_in**2 + d_out**2
    return Work(shape.layers * flops, shape.scalar * shape.layers * read)


def boundary(
    shape: Shape, anchors: Sequence[str], allocation: str, sequences: Sequences
) -> list[Work]:
    """Merging, the gradients of online EWC, the features of OSRM; nothing else takes long."""
    works = []
    if "online_ewc" in anchors:
        for length in map(len, sequences):
            works.append(shape.forward([length], length - 1, branch=True))
            works.append(shape.backward([length], length - 1))
    if allocation == "osrm":
        works.append(shape.forward([len(one) for one in sequences], 0, branch=True))
    if allocation != "shared":
        works.append(Work(2 * shape.rank * shape.adapted_dense, 8 * shape.adapted_dense))
    return works


def _minibatches(sequences: Sequences, size: int) -> list[Sequences]:
    return [sequences[start : start + size] for start in range(0, len(sequences), size)]


def _rows(sequences: Sequences) -> list[int]:
    """Of each sequence what a model reads: the last token predicts nothing."""
    return [len(one) - 1 for one in sequences]
