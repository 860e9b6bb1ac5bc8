"""The diagonal quadratic that both weight anchors share."""

from torch import Tensor

from holdfast.anchors.base import Tree


def quadratic_penalty(parameters: Tree, importance: Tree, reference: Tree) -> Tensor:
    """``sum_i importance_i (parameters_i - reference_i)^2``, a scalar.

    Source: eq. app-weight-anchor-form.
    """
    terms = [
        (importance[name] * (tensor - reference[name]).square()).sum()
        for name, tensor in parameters.items()
    ]
    return sum(terms[1:], terms[0])
