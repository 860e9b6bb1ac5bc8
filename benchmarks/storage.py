"""What a method keeps at least, in bytes: between tasks and within a step."""

from __future__ import annotations

from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner


def formula(learner: Learner, config: RunConfig, task: int) -> dict[str, int]:
    """Bytes after ``task`` tasks by part; float32 throughout.

    One adapter P_r; one dense model where factors are folded; t P_r under O-LoRA; one feature
    vector a past task and map under OSRM; a reference and an importance (or Fisher) a coordinate.
    Source: tab:method-taxonomy, eq. app-lora-storage and the text around it.
    """
    method = config.composition
    trainable = learner.adapters.gradient.numel()
    shapes = [learner.adapters.dense(name).shape for name in learner.adapters.layers]
    scalars = {"adapter": trainable}
    if method.allocation in ("merge", "osrm"):
        scalars["dense"] = sum(rows * columns for rows, columns in shapes)
    if method.allocation == "olora":
        scalars["adapter"] = task * trainable
    if method.allocation == "osrm":
        scalars["features"] = task * sum(columns for _, columns in shapes)
    if {"si", "online_ewc"} & set(method.anchors):
        scalars["weight anchor"] = 2 * trainable
    return {part: 4 * count for part, count in scalars.items()}


def resident(learner: Learner, config: RunConfig) -> int:
    """Bytes that a training step holds for the factors whatever the order of its work, in float32.

    A coordinate has its value, its gradient and AdamW's two moments; a reference and an importance
    (or Fisher) under a weight anchor; its path and the gradient of the fit term under SI. Nothing
    that passes through the model is counted, for all of it can be made again.
    """
    anchors = set(config.composition.anchors)
    scalars = 4
    if {"si", "online_ewc"} & anchors:
        scalars += 2
    if "si" in anchors:
        scalars += 2
    return 4 * scalars * learner.adapters.gradient.numel()
