"""Sequential OSRM: A starts in directions where past tasks' mean features have least energy."""

import torch

from reference.sequences import logits_of, pad_right


@torch.no_grad()
def feature_means(model, adapted, sequences, budget, batch_size, pad_id):
    """The mean input vector [d_in] of every adapted module over the first `budget` sequences.

    adapted: name -> module, A_j is applied to its first input; sequences: token id lists in task
    order. Padded positions count, and every batch has equal weight.
    Source: eq. app-osrm-feature.
    """
    model.eval()
    seen = {}
    batch_means = {name: [] for name in adapted}
    hooks = [
        module.register_forward_pre_hook(
            lambda _, inputs, name=name: seen.update({name: inputs[0]})
        )
        for name, module in adapted.items()
    ]
    used = sequences[:budget]
    for start in range(0, len(used), batch_size):
        input_ids, mask = pad_right(used[start : start + batch_size], pad_id, model.device)
        logits_of(model, input_ids, mask)
        for name in adapted:
            h = seen[name]  # [batch, padded length, d_in]
            # Half precision holds neither the sum nor the decomposition that follows.
            h = h.to(torch.promote_types(h.dtype, torch.float32))
            batch_means[name].append(h.sum(dim=(0, 1)) / (h.shape[0] * h.shape[1]))
    for hook in hooks:
        hook.remove()
    return {name: sum(means) / len(means) for name, means in batch_means.items()}


def stack(features):
    """H_<t [t - 1, d_in] of the list of past means [d_in]. Source: eq. app-osrm-stack."""
    return torch.stack(features)


def smallest_right_singular_vectors(H, rank):
    """V_min^T [rank, d_in]: the last rows of V^T in H's full singular value decomposition."""
    _, _, V_transposed = torch.linalg.svd(H, full_matrices=True)
    return V_transposed[-rank:]


def initial_A(kaiming_A, V_min_transposed):
    """kappa V_min^T, kappa the mean row norm of the Kaiming draw. Both arguments: [r, d_in].

    Source: eq. app-osrm-init.
    """
    kappa = kaiming_A.norm(dim=1).mean()
    return kappa * V_min_transposed
