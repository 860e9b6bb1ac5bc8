"""The function anchor: stay near the previous model on the current task's sequences."""

from reference.divergences import forward_kl


def function_loss(teacher_logits, student_logits, mask, temperature, divergence=forward_kl):
    """tau_F^2 times the mean KL(teacher || student) over the non-padding target positions.

    teacher_logits, student_logits: [batch, length, vocabulary]; mask: [batch, length]. The
    logits at position l are weighted by the mask of the token at l + 1 that they predict.
    Source: eq. app-function-distributions, app-function-loss.
    """
    return divergence(teacher_logits[:, :-1], student_logits[:, :-1], mask[:, 1:], temperature)
