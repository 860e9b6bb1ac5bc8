"""What the paper's storage formulas say a method keeps, in bytes.

Source: tab:method-taxonomy, eq. app-lora-storage and the text around it.
"""

from __future__ import annotations

from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner


def formula(learner: Learner, config: RunConfig, task: int) -> dict[str, int]:
    """Bytes after ``task`` tasks by part; float32 throughout.

    One adapter P_r; one dense model where factors are folded; t P_r under O-LoRA; one feature
    vector a past task and map under OSRM; a reference and an importance (or Fisher) a coordinate.
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
