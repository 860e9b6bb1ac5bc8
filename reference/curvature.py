"""The curvature anchor: Kronecker factors of the Fisher information, one position at a time.

Source: Martens & Grosse 2015 (Kronecker factors); Ritter et al. 2018 (as a penalty).
"""

import torch

from reference.adapters import factors


def drawn_tokens(logits, uniforms, temperature):
    """Draw one token per row from softmax(logits / temperature), by inverting its cumulative sums.

    logits: [n, vocabulary]; uniforms: [n], in [0, 1).
    """
    drawn = []
    for row, uniform in zip(torch.softmax(logits / temperature, dim=-1), uniforms, strict=True):
        total, token = row.sum() * uniform, 0
        mass = row[0]
        while mass <= total:
            token += 1
            mass = mass + row[token]
        drawn.append(token)
    return torch.tensor(drawn)


def kronecker_factors(model, modules, sequences, uniforms, temperature, prompts=(), questions=1.0):
    """module -> (S [d_in, d_in], G [d_out, d_out]), means over all predicting positions.

    S = E[x x^T] with x the module's input, G = E[g g^T] with g the gradient at its output of
    temperature * log softmax(logits / temperature) of a token drawn at every position. Arguments:
    as in :func:`each_sequence`.
    """
    sums = dict.fromkeys(modules, (0.0, 0.0))
    read = each_sequence(model, modules, sequences, uniforms, temperature, prompts, questions)
    for inputs, gradients in read:
        for name, (S, G) in sums.items():
            for x, g in zip(inputs[name], gradients[name], strict=True):
                S, G = S + torch.outer(x, x), G + torch.outer(g, g)
            sums[name] = S, G
    positions = sum(len(sequence) - 1 for sequence in sequences)
    return {name: (S / positions, G / positions) for name, (S, G) in sums.items()}


def each_sequence(model, modules, sequences, uniforms, temperature, prompts, questions):
    """Yield :func:`one_sequence` of each. Puts the model into evaluation mode.

    modules: name -> linear module; uniforms: per sequence, one number per predicting position;
    prompts: per sequence, the length of its question in tokens, or empty; questions: the
    log-likelihoods of question tokens are multiplied by its square root.
    """
    model.eval()
    prompts = list(prompts) or [0] * len(sequences)
    for sequence, numbers, prompt in zip(sequences, uniforms, prompts, strict=True):
        weights = torch.tensor(
            [questions**0.5 if place < prompt else 1.0 for place in range(1, len(sequence))],
            dtype=torch.float64,
        )
        yield one_sequence(model, modules, sequence, numbers, temperature, weights)


def one_sequence(model, modules, sequence, numbers, temperature, weights):
    """Two dicts by module: inputs [n, d_in], and gradients at the outputs [n, d_out]."""
    inputs, outputs = {}, {}

    def keep(name):
        def hook(_, given, produced):
            inputs[name], outputs[name] = given[0][0].detach(), produced

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in modules.items()]
    logits = model(input_ids=torch.tensor([sequence[:-1]]), use_cache=False).logits[0]
    for handle in handles:
        handle.remove()
    tokens = drawn_tokens(logits.detach(), numbers, temperature)
    log_p = torch.log_softmax(logits / temperature, dim=-1)
    likelihood = temperature * (weights * log_p.gather(1, tokens[:, None])[:, 0]).sum()
    found = torch.autograd.grad(likelihood, [outputs[name] for name in modules])
    return inputs, {name: gradient[0] for name, gradient in zip(modules, found, strict=True)}


def mean(one, count, other, other_count):
    """The mean of two curvatures, weighted by their items; either may be None (none yet)."""
    if one is None or other is None:
        return other if one is None else one
    share = count / (count + other_count)
    return {
        name: tuple(
            share * p + (1 - share) * o for p, o in zip(one[name], other[name], strict=True)
        )
        for name in other
    }


def penalty(student, start, curvature, scale):
    """1/2 sum over modules of tr(G dW S dW^T), dW = scale (B A - B_0 A_0).

    start: module -> (A_0, B_0); curvature: module -> (S, G).
    """
    total = 0.0
    for name, (A, B) in factors(student).items():
        A_0, B_0 = start[name]
        S, G = curvature[name]
        dW = scale * (B @ A - B_0 @ A_0)
        total = total + 0.5 * torch.trace(G @ dW @ S @ dW.T)
    return total
