"""Synaptic Intelligence: importance from the path the optimizer took.

Every argument is a dict from coordinate name to tensor, all with the same names and shapes.
"""

import torch


def fit_gradient(fit_loss, parameters):
    """The unclipped gradient g of the fit term, before any penalty is added.

    Source: eq. app-si-gradient.
    """
    gradients = torch.autograd.grad(fit_loss, list(parameters.values()), retain_graph=True)
    return dict(zip(parameters, gradients, strict=True))


def extend_path(path, gradient, before, after):
    """omega - g * (theta_{k+1} - theta_k), coordinate by coordinate. Source: eq. app-si-path."""
    return {name: path[name] - gradient[name] * (after[name] - before[name]) for name in path}


def consolidate(importance, path, start, end, damping):
    """The importance Omega_t and the reference theta*_t after a task.

    importance: Omega_{t-1}, zeros before the first task; damping: xi > 0.
    Source: eq. app-si-displacement, app-si-consolidate.
    """
    Omega = {}
    for name in path:
        Delta = end[name] - start[name]
        Omega[name] = importance[name] + path[name].clamp(min=0) / (Delta**2 + damping)
    reference = {name: end[name].clone() for name in end}
    return Omega, reference


def penalty(importance, reference, current):
    """Sum over coordinates of Omega * (theta - theta*)^2. Source: eq. app-si-penalty."""
    return sum(
        (importance[name] * (current[name] - reference[name]) ** 2).sum() for name in current
    )
