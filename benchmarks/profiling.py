"""Where the time of a training step goes, by kind of operation."""

from __future__ import annotations

import time
from collections import defaultdict

from torch.profiler import ProfilerActivity, profile

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
_LAYOUT_NAMES = """
    copy_ clone cat index index_put_ _index_put_impl_ index_select gather scatter fill_ zero_ zeros
    zeros_like ones ones_like full arange empty empty_like empty_strided new_empty new_zeros resize_
    contiguous stack embedding split split_with_sizes view _unsafe_view reshape transpose t permute
    select slice narrow expand as_strided detach detach_ alias to _to_copy unsqueeze squeeze
    select_backward slice_backward pad constant_pad_nd repeat masked_select nonzero lift_fresh
"""
_LAYOUT = frozenset(_LAYOUT_NAMES.split())
_DISPATCH = "Python and dispatch"


def measure(plan: Plan) -> Report:
    """The training steps of one round, by category of operator and the rest."""
    tables = []
    for method in ("vanilla", FULL) if not plan.smoke else ("vanilla",):
        steps = second_task(step_configuration(method), 8 if plan.smoke else 32)
        steps.engine()
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            begin = time.perf_counter()
            steps.engine()
            whole = 1e6 * (time.perf_counter() - begin)
        spent: dict[str, float] = defaultdict(float)
        calls: dict[str, int] = defaultdict(int)
        for event in profiled.key_averages():
            category = _category(event.key)
            spent[category] += event.self_cpu_time_total
            calls[category] += event.count
        spent[_DISPATCH] += max(0.0, whole - sum(spent.values()))
        rows = [
            [name, number(micro / 1000 / steps.count), f"{micro / whole:.0%}",
             number(calls[name] / steps.count)]
            for name, micro in sorted(spent.items(), key=lambda entry: -entry[1])
        ]  # fmt: skip
        header = ["kind", "ms a step", "share", "calls a step"]
        tables.append(Table(f"{method}, {1e-3 * whole / steps.count:.0f} ms a step", header, rows))
    return Report(
        "profile",
        "Where a training step spends its time",
        "One round of the training step's steps under torch.profiler, which slows every call a "
        "little: own time of each operator on the calling thread, by kind; what lies between "
        "operators, and the autograd engine's own time, is dispatch. The shares count, not the "
        "milliseconds.",
        tables=tables,
    )


def _category(name: str) -> str:
    lower = name.lower()
    for category, parts in _CATEGORIES.items():
        if any(part in lower for part in parts) and "::evaluate_function" not in lower:
            return category
    if not lower.startswith("aten::"):
        return _DISPATCH
    operator = lower.removeprefix("aten::")
    if operator in _PRODUCTS:
        return "matrix products"
    return "copies and layout" if operator in _LAYOUT else "elementwise and reductions"


if __name__ == "__main__":
    command(measure, rounds=1)
