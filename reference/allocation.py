"""The dense matrix under shared LoRA, merged LoRA and O-LoRA, and what O-LoRA adds to a step.

W: [d_out, d_in]; A: [r, d_in]; B: [d_out, r]; scale: rho = alpha / r.
"""

import torch


def effective_weight(W, A, B, scale):
    """W + rho B A.

    Shared LoRA: W is W_0. Merged LoRA and OSRM: W is W_{t-1}, and with the final factors this is
    the committed W_t. Source: eq. app-lora, app-shared, app-merge-forward, app-merge.
    """
    return W + scale * (B @ A)


def concatenate(past):
    """A_<t [(t-1) r, d_in] and B_<t [d_out, (t-1) r] of a non-empty list of (A*, B*).

    Source: eq. app-olora-concat.
    """
    A = torch.cat([A for A, _ in past], dim=0)
    B = torch.cat([B for _, B in past], dim=1)
    return A, B


def o_lora_weight(W_0, pairs, scale):
    """W_0 + rho sum_s B_s A_s over the pairs (A_s, B_s), the current pair last, if any.

    Source: eq. app-olora-forward, app-olora-sum.
    """
    W = W_0
    for A, B in pairs:
        W = W + scale * (B @ A)
    return W


def overlap(past_A, current_A):
    """Sum over modules of the entrywise l1 norm of A_<t A_t^T.

    past_A: module -> [(t-1) r, d_in], empty on the first task; current_A: module -> [r, d_in].
    Source: eq. app-olora-orth.
    """
    total = torch.zeros(())
    for module in past_A:
        total = total + (past_A[module] @ current_A[module].T).abs().sum()
    return total


def factor_norm(current):
    """Sum over modules of ||A||_F + ||B||_F. current: module -> (A, B).

    Source: eq. app-olora-l2.
    """
    return sum(torch.linalg.norm(A) + torch.linalg.norm(B) for A, B in current.values())


def project_gradient(gradient, past_A):
    """G (I - A^+ A) with A = A_<t: the part of G [r, d_in] orthogonal to the rows of A_<t.

    The paper names this option without a formula (app:hyperparameters) and leaves it off.
    """
    return gradient - gradient @ torch.linalg.pinv(past_A) @ past_A
