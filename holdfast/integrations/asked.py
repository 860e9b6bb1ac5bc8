"""What the model is asked between two tasks: samples, and curvature on sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from holdfast.backbone.curvature import curvature_of, positions_of
from holdfast.core.seeding import derive, generator
from holdfast.integrations.previous import samples
from holdfast.integrations.sequences import TaskSequences
from holdfast.model.curvature import Curvature, Positions

if TYPE_CHECKING:
    from holdfast.integrations.anchored import Anchored

Draw = tuple[int, str, int]


def asks(anchored: Anchored, what: str) -> bool:
    """Whether an anchor of a class with this need is there, whatever its settings."""
    return any(getattr(type(one).needs, what) for one in anchored.anchors.values())


def written_before(anchored: Anchored, number: int) -> tuple[list[list[int]], list[list[int]]]:
    """Samples of the model before task ``number``: for replay, and of general text."""
    reader, sampling, stop = anchored.reader, anchored.sampling, anchored.stop_tokens
    replay: list[list[int]] = []
    if number > 1 and (anchored.needs("replay") or anchored.needs("curvature")):
        prompts = [anchored.begin_with] * sampling.samples
        seed = derive(anchored.seed, "replay", number)
        replay = samples(reader, prompts, sampling, stop, seed)
    general: list[list[int]] = []
    first = number == 1 and (asks(anchored, "curvature") or asks(anchored, "positions"))
    if sampling.general and (first or anchored.needs("curvature")):
        weight: Any = reader.head.weight
        source = generator(anchored.seed, "general text", number)
        begins = torch.randint(len(weight), (sampling.general, 1), generator=source)
        seed = derive(anchored.seed, "general", number)
        general = samples(reader, begins.tolist(), sampling, stop, seed)
    return replay, general


def curvature_on(anchored: Anchored, texts: TaskSequences, draw: Draw) -> Curvature:
    """Kronecker factors of every adapted map on sequences."""
    given = (anchored.workspace.layers, texts.ids, anchored.curvature, draw, texts.labels)
    with anchored.reader.answering():
        return curvature_of(anchored.reader, *given)


def positions_on(anchored: Anchored, texts: TaskSequences, draw: Draw, count: int) -> Positions:
    """x and g of every adapted map at ``count`` positions of sequences."""
    given = (anchored.workspace.layers, texts.ids, anchored.curvature, draw, texts.labels)
    with anchored.reader.answering():
        return positions_of(anchored.reader, *given, count)
