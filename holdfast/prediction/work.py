"""The operations and bytes of the phases of a task, from the passes of :class:`Shape`.

Sequences are tokens; where nothing is encoded yet any of the right length do. branch: whether the
low-rank branch takes part, which a merged model lacks; under the rule ``shared`` it always does.
again: whether layers are computed a second time on the way back (``backbone.checkpointing``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.learning.config import RunConfig
from holdfast.prediction.shape import Shape, Work

Sequences = Sequence[Sequence[int]]


def sampling(shape: Shape, drawn: Sequences, *, branch: bool = False) -> list[Work]:
    """One decoding step a position, for the sequences that have not stopped."""
    return [
        shape.decode(sum(len(one) > position for one in drawn), position, branch=branch)
        for position in range(max(map(len, drawn)))
    ]


def teacher(shape: Shape, sequences: Sequences, *, branch: bool = False) -> list[Work]:
    """The previous model's states."""
    return [shape.forward(_rows(sequences), 0, branch=branch)]


def step(
    shape: Shape,
    anchors: Sequence[str],
    current: Sequences,
    replay: Sequences,
    rule: str = "merge",
) -> list[Work]:
    """One optimiser step on a minibatch; the teacher's states are known, its logits are not.

    rule: the allocation rule's name.
    """
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
    elif "si" in anchors and rule == "olora" and theirs:
        # There it leaves replay out; the other gradient passes through all rows, projected once.
        works.append(shape.backward(ours, 0))
    if "kfac" in anchors:
        works.append(term(shape, kept=rule == "shared"))
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
        partner = partners[place % len(partners)]
        works += step(shape, anchors, current[place], partner, config.composition.allocation)
        if config.backbone.checkpointing:
            works.append(shape.forward(_rows([*current[place], *partner]), 0, branch=True))
    return works


def learning(
    shape: Shape, config: RunConfig, sequences: Sequences, replay: Sequences
) -> list[Work]:
    """A task but for its boundary: sampling, teacher and every step.

    replay: what the previous model wrote, with the seed token; empty where nothing is replayed.
    """
    branch = config.composition.allocation == "shared"
    works = sampling(shape, [one[1:] for one in replay], branch=branch) if replay else []
    asked = [*replay, *(sequences if "sd" in config.composition.anchors else [])]
    works += teacher(shape, asked, branch=branch) if asked else []
    return works + steps(shape, config, sequences, replay, config.composition.anchors)


def row(shape: Shape, lengths: Sequence[int], answers: int, *, branch: bool = False) -> list[Work]:
    """One pass over every prompt and answer; only the answers' positions are projected.

    lengths: tokens of each prompt with its answer; answers: tokens of all answers.
    """
    return [shape.forward(lengths, answers, branch=branch)]


def fisher_pass(
    shape: Shape, sequences: Sequences, *, branch: bool = False, again: bool = False
) -> list[Work]:
    """There and back, and the outer products of S and G.

    Maps that read one tensor share their S. With the branch the factors' gradients are taken too.
    """
    rows = _rows(sequences)
    tokens = sum(rows)
    passed = shape if branch else replace(shape, rank=0)
    squares = sum(d_in**2 + sum(one**2 for one in widths) for d_in, widths in shape.readers())
    return [
        passed.forward(rows, tokens, branch=branch),
        *([passed.forward(rows, 0, branch=branch)] if again else []),
        passed.backward(rows, tokens),
        Work(2 * tokens * shape.layers * squares, shape.scalar * shape.layers * squares),
    ]


def term(shape: Shape, *, kept: bool = False) -> Work:
    """The quadratic form of ``kfac`` with its gradient, S and G being dense.

    ``G B`` and ``A S``, and the products of the rank's size that follow, there and back. kept:
    whether the factors are those of the task before, so that an update has both, twice the rank.
    """
    rank, flops, read = shape.rank * (1 + kept), 0, 0
    for d_in, d_out in (shape.maps[name] for name in shape.adapted):
        flops += 2 * rank * (d_in**2 + d_out**2) + 4 * rank**2 * (d_in + d_out)
        read += d_in**2 + d_out**2
    return Work(shape.layers * flops, shape.scalar * shape.layers * read)


def boundary(shape: Shape, config: RunConfig, sequences: Sequences) -> list[Work]:
    """Merging, the gradients of online EWC, the features of OSRM; nothing else takes long."""
    works = []
    rule = config.composition.allocation
    if "online_ewc" in config.composition.anchors:
        for rows in _rows(sequences[: config.online_ewc.sequences]):
            works.append(shape.forward([rows], rows, branch=True))
            works.append(shape.backward([rows], rows))
            if config.backbone.checkpointing:
                works.append(shape.forward([rows], 0, branch=True))
    if rule == "osrm":
        observed = sequences[: config.sequential_osrm.sequences]
        works.append(shape.forward([len(one) for one in observed], 0, branch=True))
    if rule != "shared":
        works.append(Work(2 * shape.rank * shape.adapted_dense, 8 * shape.adapted_dense))
    return works


def _minibatches(sequences: Sequences, size: int) -> list[Sequences]:
    return [sequences[start : start + size] for start in range(0, len(sequences), size)]


def _rows(sequences: Sequences) -> list[int]:
    """Of each sequence what a model reads: the last token predicts nothing."""
    return [len(one) - 1 for one in sequences]
