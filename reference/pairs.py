"""The paired curvature anchor: positions, each with the inputs and gradients of all modules.

Holdfast's own; see holdfast/anchors/pairs.py.
"""

import torch

from reference.adapters import factors
from reference.curvature import one_sequence


def taken(model, modules, sequences, uniforms, keys, count, temperature, prompts, questions, dense):
    """The ``count`` predicting positions with the smallest keys.

    uniforms, keys: per sequence, one number per predicting position; prompts, questions: as in
    :func:`reference.curvature.kronecker_factors`; dense: module -> W of the current model.
    """
    model.eval()
    prompts = list(prompts) or [0] * len(sequences)
    found = []
    for sequence, numbers, drawn, prompt in zip(sequences, uniforms, keys, prompts, strict=True):
        weights = torch.tensor(
            [questions**0.5 if place < prompt else 1.0 for place in range(1, len(sequence))],
            dtype=torch.float64,
        )
        inputs, gradients = one_sequence(model, modules, sequence, numbers, temperature, weights)
        for place, key in enumerate(drawn.tolist()):
            x = {name: inputs[name][place] for name in modules}
            g = {name: gradients[name][place] for name in modules}
            found.append({"key": key, "x": x, "g": g, "W": dense})
    return smallest(found, count)


def smallest(positions, count):
    return sorted(positions, key=lambda position: position["key"])[:count]


def penalty(student, start, dense, positions, scale):
    """1/2 mean over positions of (sum over modules of g^T (W - W_then) x)^2.

    start, dense: module -> (A_0, B_0) and module -> W, both before the first step; W_then: W when
    the position was taken.
    """
    total = 0.0
    for position in positions:
        change = 0.0
        for name, (A, B) in factors(student).items():
            A_0, B_0 = start[name]
            dW = dense[name] + scale * (B @ A - B_0 @ A_0) - position["W"][name]
            change = change + position["g"][name] @ dW @ position["x"][name]
        total = total + 0.5 * change**2
    return total / len(positions)
