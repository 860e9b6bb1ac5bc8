"""The paired curvature anchor: positions, each with the inputs and gradients of all modules.

Holdfast's own; see holdfast/anchors/pairs.py.
"""

from reference.adapters import factors
from reference.curvature import each_sequence


def taken(model, modules, sequences, uniforms, keys, count, temperature, prompts, questions, dense):
    """The ``count`` predicting positions with the smallest keys.

    keys: per sequence, one number per predicting position; dense: module -> W of the current model;
    the others: as in :func:`reference.curvature.each_sequence`.
    """
    found = []
    read = each_sequence(model, modules, sequences, uniforms, temperature, prompts, questions)
    for (inputs, gradients), drawn in zip(read, keys, strict=True):
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
