"""Where the time of a training step goes, by kind of operation."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
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
_PRODUCTS = {"addmm", "mm", "bmm", "baddbmm", "addmm_"}
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
        watched, rounds = _Watched(steps.twins.config.lora.rank), []
        for _ in range(plan.rounds):
            begin = time.perf_counter()
            steps.engine()
            rounds.append(time.perf_counter() - begin)
            with watched:
                steps.engine()
        count = steps.count * plan.rounds
        whole = statistics.median(rounds) / steps.count
        spent = {name: seconds / count for name, seconds in watched.seconds.items()}
        spent[_REST] = max(0.0, whole - sum(spent.values()) + spent.get(_REST, 0.0))
        rows = [
            [
                name,
                number(1000 * seconds),
                f"{seconds / whole:.0%}",
                number(watched.calls[name] / count),
                number(watched.flops[name] / watched.seconds[name] / 1e9)
                if watched.flops[name]
                else "",
            ]
            for name, seconds in sorted(spent.items(), key=lambda entry: -entry[1])
        ]
        header = ["kind", "ms a step", "share", "calls a step", "Gflop/s"]
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
    """Within it, seconds and calls of every operator below autograd, and the work of products.

    By kind. rank: of the factors; the factors of maps that share an input lie side by side.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._narrow = 3 * rank
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self.flops: dict[str, int] = defaultdict(int)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        begin = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        seconds = time.perf_counter() - begin
        name = func.overloadpacket.__name__
        category = _category(name)
        if name in _PRODUCTS:
            left, right = [one for one in args if isinstance(one, Tensor)][-2:]
            sides = (*left.shape[-2:], right.shape[-1])
            category = "attention's products"
            if left.dim() == 2:
                narrow = min(sides) <= self._narrow
                category = f"products with {'factors' if narrow else 'frozen matrices'}"
            self.flops[category] += 2 * left.numel() * sides[-1]
        self.seconds[category] += seconds
        self.calls[category] += 1
        return result


def _category(name: str) -> str:
    for category, parts in _CATEGORIES.items():
        if any(part in name for part in parts):
            return category
    if name in _VIEWS:
        return _REST
    return "copies" if name in _COPIES else "elementwise and reductions"


if __name__ == "__main__":
    command(measure, rounds=5)
