"""The diagonal quadratic that both weight anchors share."""

from torch import Tensor


def quadratic_penalty(parameters: Tensor, importance: Tensor, reference: Tensor) -> Tensor:
    """``sum_i importance_i (parameters_i - reference_i)^2``; all [P].

    Source: eq. app-weight-anchor-form.
    """
    return (importance * (parameters - reference).square()).sum()
