"""How fast this machine multiplies matrices and moves bytes: the floor under counted work."""

from __future__ import annotations

from benchmarks.record import Table, number
from holdfast.prediction import rates
from holdfast.prediction.rates import Rates
from holdfast.prediction.shape import Shape


def rates_of(shape: Shape) -> Rates:
    """The rates at the size of a model's frozen matrices."""
    return rates.processor_rates(shape.weight_bytes)


def rates_table(shape: Shape) -> Table:
    """What the floors of a report were computed with."""
    found = rates_of(shape)
    row = [number(found.flops / 1e9), number(found.bytes / 1e9)]
    return Table("Peak rates of this machine", ["Gflop/s, float32", "GB/s in the weights"], [row])
