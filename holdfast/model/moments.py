"""Second moments of vectors, ``E[v v^T]``: dense, or the leading eigenpairs and an isotropic rest.

A dense moment of width d has d^2 numbers, which is too many for the wide maps of a large model.
For these a sketch is summed, ``E[v v^T] Omega`` with few random columns, which gives the leading
eigenpairs without the moment itself (Nystroem's approximation).
Source: Tropp et al. 2017, "Fixed-Rank Approximation of a Positive-Semidefinite Matrix from
Streaming Data".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.core.processes import all_reduce_, all_reduce_count
from holdfast.core.seeding import generator


@dataclass(frozen=True)
class DenseMoment:
    """A symmetric positive semidefinite matrix M, [d, d], all of which is kept."""

    matrix: Tensor

    def times(self, rows: Tensor) -> Tensor:
        """``rows M``, [n, d] -> [n, d]; differentiable in the rows."""
        return rows @ self.matrix

    def dense(self) -> Tensor:
        """M itself, [d, d]."""
        return self.matrix

    def is_finite(self) -> bool:
        """Whether every entry is finite."""
        return bool(self.matrix.isfinite().all())

    def mixed(self, other: Any, decay: float) -> DenseMoment:
        """``decay`` times this plus ``1 - decay`` times another of the same kind."""
        return DenseMoment(torch.lerp(other.matrix, self.matrix, decay))

    def parts(self) -> dict[str, Tensor]:
        """Its tensors by name; :func:`moment_of` is the inverse."""
        return {"": self.matrix}


@dataclass(frozen=True)
class LeadingMoment:
    """``M = U diag(values) U^T + rest (I - U U^T)``, with the trace of the exact moment.

    The methods are those of :class:`DenseMoment`.
    basis: U, orthonormal, [d, k]; values: [k], descending; rest: [].
    """

    basis: Tensor
    values: Tensor
    rest: Tensor

    def times(self, rows: Tensor) -> Tensor:
        return torch.addmm(
            self.rest * rows, (rows @ self.basis) * (self.values - self.rest), self.basis.t()
        )

    def dense(self) -> Tensor:
        return self.times(torch.eye(len(self.basis)).to(self.basis))

    def is_finite(self) -> bool:
        return all(bool(part.isfinite().all()) for part in (self.basis, self.values, self.rest))

    def mixed(self, other: Any, decay: float) -> LeadingMoment:
        """As for a dense one, with as many leading eigenpairs as the larger one has."""
        roots = [
            moment.basis.double()
            * (weight * (moment.values - moment.rest).double().clamp(min=0)).sqrt()
            for moment, weight in ((self, decay), (other, 1 - decay))
        ]
        rest = decay * self.rest.double() + (1 - decay) * other.rest.double()
        basis, singular, _ = torch.linalg.svd(torch.cat(roots, dim=1), full_matrices=False)
        count = max(len(self.values), len(other.values))
        values = singular.square()
        beyond = values[count:].sum() / max(1, len(basis) - count)
        return LeadingMoment(
            basis[:, :count].to(self.basis).contiguous(),
            (values[:count] + rest).to(self.values),
            (rest + beyond).to(self.rest),
        )

    def parts(self) -> dict[str, Tensor]:
        return {"_basis": self.basis, "_values": self.values, "_rest": self.rest}


Moment = DenseMoment | LeadingMoment


def moment_of(parts: Mapping[str, Tensor]) -> Moment:
    """The inverse of :meth:`DenseMoment.parts`; KeyError on other names."""
    if parts.keys() == {""}:
        return DenseMoment(parts[""])
    if parts.keys() != {"_basis", "_values", "_rest"}:
        raise KeyError(f"no moment has the parts {sorted(parts)}")
    return LeadingMoment(parts["_basis"], parts["_values"], parts["_rest"])


@dataclass(frozen=True)
class MomentSums:
    """How moments are kept: dense up to a width, else by leading eigenpairs.

    The random columns of a sketch depend on the seed and the vectors' name only.
    """

    exact_up_to: int
    eigenpairs: int
    dtype: torch.dtype
    seed: int

    def numbers(self, width: int) -> int:
        """How many numbers a moment of this width has."""
        return width**2 if self._dense(width) else (width + 1) * self.eigenpairs + 1

    def _dense(self, width: int) -> bool:
        return width <= max(self.exact_up_to, self.eigenpairs)

    def new(self, width: int, device: torch.device, name: str) -> MomentSum:
        """An empty sum for vectors of this width."""
        if self._dense(width):
            return _DenseSum(torch.zeros(width, width, dtype=self.dtype, device=device))
        # Twice as many columns as eigenpairs: the leading half is nearly exact.
        columns = min(width, 2 * self.eigenpairs)
        source = generator(self.seed, "sketch", name)
        drawn = torch.randn(width, columns, generator=source, dtype=torch.float32)
        return _SketchedSum(drawn.to(device, self.dtype), self.eigenpairs)


class _DenseSum:
    def __init__(self, total: Tensor) -> None:
        self._total = total
        self._count = 0

    def add(self, rows: Tensor) -> None:
        """Add vectors, [n, d]."""
        wide = rows.to(self._total.dtype)
        self._total.addmm_(wide.t(), wide)
        self._count += len(rows)

    def mean(self) -> DenseMoment:
        """The moment over all vectors so far, those of other processes included."""
        return DenseMoment(all_reduce_(self._total) / max(1, all_reduce_count(self._count)))


class _SketchedSum:
    def __init__(self, columns: Tensor, eigenpairs: int) -> None:
        """columns: Omega, [d, 2 k]."""
        self._columns = columns
        self._sketch = torch.zeros_like(columns)
        self._trace = columns.new_zeros(())
        self._eigenpairs = eigenpairs
        self._count = 0

    def add(self, rows: Tensor) -> None:
        wide = rows.to(self._columns.dtype)
        self._sketch.addmm_(wide.t(), wide @ self._columns)
        self._trace += wide.square().sum()
        self._count += len(rows)

    def mean(self) -> LeadingMoment:
        """The leading eigenpairs of ``Y (Omega^T Y)^+ Y^T``, where ``Y = M Omega``."""
        count, eigenpairs = max(1, all_reduce_count(self._count)), self._eigenpairs
        sketch = all_reduce_(self._sketch).double() / count
        trace = all_reduce_(self._trace).double() / count
        width = len(sketch)
        basis, values = sketch[:, :0], trace[None][:0]
        if eigenpairs and bool(sketch.isfinite().all()):
            core = self._columns.double().t() @ sketch
            eigenvalues, turn = torch.linalg.eigh((core + core.t()) / 2)
            # Smaller eigenvalues are rounding errors in directions that the vectors do not span.
            tolerance = eigenvalues[-1] * len(eigenvalues) * torch.finfo(self._sketch.dtype).eps
            eigenvalues = torch.where(eigenvalues > tolerance, eigenvalues, torch.inf)
            root = sketch @ (turn * eigenvalues.rsqrt())
            basis, singular, _ = torch.linalg.svd(root, full_matrices=False)
            basis, values = basis[:, :eigenpairs], singular[:eigenpairs].square()
        elif eigenpairs:
            values = sketch.new_full((1,), torch.nan)
            basis = sketch[:, :1]
        rest = (trace - values.sum()).clamp(min=0) / max(1, width - len(values))
        dtype = self._columns.dtype
        return LeadingMoment(basis.to(dtype).contiguous(), values.to(dtype), rest.to(dtype))


MomentSum = _DenseSum | _SketchedSum
