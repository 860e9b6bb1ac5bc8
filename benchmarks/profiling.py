"""Where the time of a training step goes, by kind of operation."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.pairing import Plan
from benchmarks.record import Report, Table, command, number
from benchmarks.training_step import second_task, step_configuration
from benchmarks.twins import FULL

# Operators by what they do; those of ATen that are not named here work elementwise or reduce.
_CATEGORIES = {
    "attention": ("scaled_dot_product", "flash_attention", "efficient_attention"),
    "losses": ("softmax", "cross_entropy", "nll_loss", "kl_div", "logsumexp"),
    "optimiser": ("adam", "foreach", "linalg_vector_norm"),
}
_PRODUCTS = {"addmm", "mm", "bmm", "matmul", "linear", "baddbmm", "addmm_"}
_COPY_NAMES = """
    copy_ clone cat index index_put_ index_select index_copy gather scatter fill_ zero_ zeros ones
    full arange empty empty_like empty_strided new_empty new_zeros embedding _to_copy repeat
"""
# These touch no number, and watching them takes longer than they do.
_VIEW_NAMES = """
    split split_with_sizes view _unsafe_view transpose t permute select slice expand as_strided
    detach alias unsqueeze squeeze unbind
"""
_COPIES, _VIEWS = frozenset(_COPY_NAMES.split()), frozenset(_VIEW_NAMES.split())
_REST = "views, Python, masks"


def measure(plan: Plan) -> Report:
    """The training steps of one round, by category of operator and the rest."""
    tables = []
    for method in ("vanilla", FULL) if not plan.smoke else ("vanilla",):
        steps = second_task(step_configuration(method), 8 if plan.smoke else 32)
        steps.engine()
        watched, rounds = _Watched(), []
        for _ in range(plan.rounds):
            begin = time.perf_counter()
            steps.engine()
            rounds.append(time.perf_counter() - begin)
            with watched:
                steps.engine()
        count = steps.count * plan.rounds
        whole = statistics.median(rounds) / steps.count
        spent: dict[str, float] = defaultdict(float)
        calls: dict[str, int] = defaultdict(int)
        for name, seconds in watched.seconds.items():
            spent[_category(name)] += seconds / count
            calls[_category(name)] += watched.calls[name]
        worked = sum(seconds for name, seconds in spent.items() if name != _REST)
        spent[_REST] = max(0.0, whole - worked)
        rows = [
            [name, number(1000 * seconds), f"{seconds / whole:.0%}", number(calls[name] / count)]
            for name, seconds in sorted(spent.items(), key=lambda entry: -entry[1])
        ]
        header = ["kind", "ms a step", "share", "calls a step"]
        tables.append(Table(f"{method}, {1000 * whole:.0f} ms a step", header, rows))
    return Report(
        "profile",
        "Where a training step spends its time",
        "The training step's steps. Time within the operators, by kind, from rounds where each is "
        "watched, which adds some microseconds to a call; views, Python and masks are the rest of "
        "a step of the rounds, in alternation with them, where none is. torch.profiler would add "
        "more: its records make tensors come to lie in fresh memory, whose page faults copies and "
        "elementwise work would be charged with.",
        tables=tables,
    )


class _Watched(TorchDispatchMode):
    """Within it, seconds and calls of every operator below autograd, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        begin = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.seconds[name] += time.perf_counter() - begin
        self.calls[name] += 1
        return result


def _category(name: str) -> str:
    for category, parts in _CATEGORIES.items():
        if any(part in name for part in parts):
            return category
    if name in _PRODUCTS:
        return "matrix products"
    if name in _VIEWS:
        return _REST
    return "copies" if name in _COPIES else "elementwise and reductions"


if __name__ == "__main__":
    command(measure, rounds=5)
