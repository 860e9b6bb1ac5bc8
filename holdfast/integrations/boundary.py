"""Between two tasks: samples of the model, and its curvature on sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from holdfast.backbone.curvature import CurvatureData, curvature_of, positions_of
from holdfast.core.seeding import derive, generator
from holdfast.integrations.previous import samples
from holdfast.integrations.sequences import TaskSequences
from holdfast.model.curvature import Curvature, Positions

if TYPE_CHECKING:
    from holdfast.integrations.anchored import Anchored

Draw = tuple[int, str, int]


def needs_general_curvature(anchored: Anchored) -> bool:
    """Whether an anchor needs curvature on general text before the first task."""
    return any(type(one).needs.curvature for one in anchored.anchors.values())


def samples_before(anchored: Anchored, number: int) -> tuple[list[list[int]], list[list[int]]]:
    """Samples of the model before task ``number``: for replay, and of general text."""
    reader, sampling, stop = anchored.reader, anchored.sampling, anchored.stop_tokens
    replay: list[list[int]] = []
    if number > 1 and (anchored.needs("replay") or anchored.needs("curvature")):
        prompts = [anchored.begin_with] * sampling.samples
        seed = derive(anchored.seed, "replay", number)
        replay = samples(reader, prompts, sampling, stop, seed)
    general: list[list[int]] = []
    first = number == 1 and (needs_general_curvature(anchored) or anchored.needs("positions"))
    if sampling.general and (first or anchored.needs("curvature")):
        weight: Any = reader.head.weight
        source = generator(anchored.seed, "general text", number)
        begins = torch.randint(len(weight), (sampling.general, 1), generator=source)
        seed = derive(anchored.seed, "general", number)
        general = samples(reader, begins.tolist(), sampling, stop, seed)
    return replay, general


def curvature_on(anchored: Anchored, texts: TaskSequences, draw: Draw) -> Curvature:
    """Kronecker factors of every adapted map on sequences."""
    with anchored.reader.answering():
        return curvature_of(_data(anchored, texts, draw))


def positions_on(anchored: Anchored, texts: TaskSequences, draw: Draw, count: int) -> Positions:
    """x and g of every adapted map at ``count`` positions of sequences."""
    with anchored.reader.answering():
        return positions_of(_data(anchored, texts, draw), count)


def _data(anchored: Anchored, texts: TaskSequences, draw: Draw) -> CurvatureData:
    layers, config = anchored.workspace.layers, anchored.curvature
    return CurvatureData(anchored.reader, layers, texts.ids, config, draw, texts.labels)
