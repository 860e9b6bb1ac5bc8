"""Second moments: dense ones are exact, sketched ones keep the leading part and the trace."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.model.moments import DenseMoment, LeadingMoment, MomentSums, moment_of

CPU = torch.device("cpu")
WIDTH, RANK = 12, 3


def rows(count: int, seed: int, rank: int = WIDTH, noise: float = 0.0) -> Tensor:
    """Vectors [count, WIDTH] that lie in ``rank`` directions, and a little beside them."""
    source = torch.Generator().manual_seed(seed)
    low = torch.randn(count, rank, generator=source, dtype=torch.float64)
    turn = torch.randn(rank, WIDTH, generator=source, dtype=torch.float64)
    beside = torch.randn(count, WIDTH, generator=source, dtype=torch.float64)
    return low @ turn + noise * beside


def moment(vectors: Tensor, exact_up_to: int, eigenpairs: int) -> DenseMoment | LeadingMoment:
    """Taken in three unequal parts, as minibatches come."""
    sums = MomentSums(exact_up_to, eigenpairs, torch.float64, seed=3).new(WIDTH, CPU, "x")
    for part in vectors.split([1, 4, len(vectors) - 5]):
        sums.add(part)
    mean = sums.mean()
    assert isinstance(mean, DenseMoment | LeadingMoment)
    return mean


def exact(vectors: Tensor) -> Tensor:
    return vectors.t() @ vectors / len(vectors)


@pytest.mark.parametrize("exact_up_to", [WIDTH, 0])
def test_a_moment_of_few_directions_is_exact_either_way(exact_up_to: int) -> None:
    vectors = rows(30, seed=1, rank=RANK)
    taken = moment(vectors, exact_up_to, eigenpairs=RANK)
    assert isinstance(taken, DenseMoment) == (exact_up_to == WIDTH)
    torch.testing.assert_close(taken.dense(), exact(vectors), rtol=1e-9, atol=1e-9)
    some = rows(4, seed=2)
    torch.testing.assert_close(taken.times(some), some @ exact(vectors), rtol=1e-8, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 6), st.integers(0, 10_000), st.floats(0.0, 1.0))
def test_a_sketch_keeps_the_trace_and_stays_positive(eigenpairs, seed, noise) -> None:
    vectors = rows(30, seed=seed, rank=RANK, noise=noise)
    taken = moment(vectors, exact_up_to=0, eigenpairs=eigenpairs)
    dense = taken.dense()
    torch.testing.assert_close(dense.trace(), exact(vectors).trace(), rtol=1e-9, atol=1e-9)
    assert torch.linalg.eigvalsh(dense).min() > -1e-9 * dense.trace()
    torch.testing.assert_close(dense, dense.t())


def test_a_sketch_finds_the_leading_eigenpairs() -> None:
    """Three strong directions over weak noise: the error is of the noise's size."""
    vectors = rows(4000, seed=4, rank=RANK, noise=0.05)
    taken = moment(vectors, exact_up_to=0, eigenpairs=RANK)
    assert isinstance(taken, LeadingMoment)
    leading = torch.linalg.eigvalsh(exact(vectors)).flip(0)[:RANK]
    torch.testing.assert_close(taken.values, leading, rtol=5e-3, atol=0)
    error = torch.linalg.matrix_norm(taken.dense() - exact(vectors), ord=2)
    assert error < 3 * 0.05**2


@pytest.mark.parametrize(("exact_up_to", "eigenpairs"), [(WIDTH, 0), (0, WIDTH - 1), (0, 2 * RANK)])
def test_a_mixture_is_the_weighted_sum(exact_up_to: int, eigenpairs: int) -> None:
    vectors, others = rows(30, seed=1, rank=RANK), rows(30, seed=2, rank=RANK)
    first, second = (moment(each, exact_up_to, eigenpairs) for each in (vectors, others))
    mixture = first.mixed(second, 0.7)
    wanted = 0.7 * exact(vectors) + 0.3 * exact(others)
    torch.testing.assert_close(mixture.dense(), wanted, rtol=1e-8, atol=1e-8)


def test_a_mixture_of_leading_parts_keeps_the_trace() -> None:
    vectors, others = rows(30, seed=1, noise=0.5), rows(30, seed=2, noise=0.5)
    first, second = (moment(each, 0, RANK) for each in (vectors, others))
    mixture = first.mixed(second, 0.4)
    assert isinstance(mixture, LeadingMoment) and len(mixture.values) == RANK
    wanted = 0.4 * exact(vectors).trace() + 0.6 * exact(others).trace()
    torch.testing.assert_close(mixture.dense().trace(), wanted)


@pytest.mark.parametrize("exact_up_to", [WIDTH, 0])
def test_parts_round_trip_and_other_names_are_refused(exact_up_to: int) -> None:
    before = moment(rows(30, seed=1), exact_up_to, RANK)
    again = moment_of(before.parts())
    assert torch.equal(again.dense(), before.dense())
    with pytest.raises(KeyError):
        moment_of({**before.parts(), "other": torch.zeros(1)})


@pytest.mark.parametrize("exact_up_to", [WIDTH, 0])
def test_what_is_no_number_is_seen(exact_up_to: int) -> None:
    vectors = rows(30, seed=1)
    assert moment(vectors, exact_up_to, RANK).is_finite()
    vectors[7, 2] = float("nan")
    assert not moment(vectors, exact_up_to, RANK).is_finite()
