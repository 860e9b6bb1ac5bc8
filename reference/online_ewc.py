"""Online EWC: importance from the trained model's gradients, one running diagonal Fisher.

Fishers, references and parameters are dicts from coordinate name to tensor.
"""

import torch

from reference.sequences import logits_of, pad_right, sft_loss


def fisher(model, parameters, sequences, budget):
    """F: the mean squared gradient of the first `budget` sequences' losses, one at a time.

    sequences: token id lists in task order. The model is put into evaluation mode.
    Source: eq. app-fisher.
    """
    model.eval()
    used = sequences[:budget]
    total = {name: torch.zeros_like(value) for name, value in parameters.items()}
    for sequence in used:
        input_ids, mask = pad_right([sequence], pad_id=0, device=model.device)
        loss = sft_loss(logits_of(model, input_ids, mask), input_ids, mask)
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        for name, gradient in zip(parameters, gradients, strict=True):
            total[name] += gradient**2
    return {name: value / len(used) for name, value in total.items()}


def mean_fisher(F):
    """The mean of F over all coordinates of all tensors. Source: eq. app-fisher-normalize."""
    return sum(value.sum() for value in F.values()) / sum(value.numel() for value in F.values())


def normalise(F, first_mean):
    """F rescaled so that its mean is the first task's mean. Source: eq. app-fisher-normalize."""
    scale = first_mean / mean_fisher(F)
    return {name: value * scale for name, value in F.items()}


def update(running, normalised, decay):
    """gamma * running + normalised; running is zeros before the first task.

    Source: eq. app-online-ewc-update.
    """
    return {name: decay * running[name] + normalised[name] for name in running}


def penalty(running, reference, current):
    """Sum over coordinates of F * (theta - theta*)^2; the running Fisher F has decayed already.

    Source: eq. app-online-ewc-penalty.
    """
    return sum((running[name] * (current[name] - reference[name]) ** 2).sum() for name in current)
