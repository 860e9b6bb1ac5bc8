"""How much state a method carries from task to task: measured, and by the paper's formulas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from safetensors import SafetensorError, safe_open

from holdfast.analysis.study import final_runs
from holdfast.core.file_checks import regular
from holdfast.core.mechanisms import VANILLA, has

BYTES = 4  # per scalar: factors, anchors' state and masters of merged matrices are float32


@dataclass(frozen=True)
class Shapes:
    """Sizes summed over the adapted layers of a model; NaN if unknown. adapter: P_r, the scalars of
    one rank-r adapter, r (d_in + d_out); dense: d_out d_in; inputs: d_in.

    Source: eq. app-lora-storage.
    """

    adapter: float = math.nan
    dense: float = math.nan
    inputs: float = math.nan


def state_size(cells: pd.DataFrame) -> pd.DataFrame:
    """Persistent state of every method after its last task, on disk and by formula.

    cells: of a study; only those that :func:`holdfast.analysis.study.final_runs` selects count.
    Columns: ``dataset``, ``method``, ``horizon`` (t), ``measured_bytes`` (size of the last commit
    on disk, mean over seeds), ``formula`` (in scalars, W being all adapted dense matrices),
    ``growth`` (``constant`` or ``linear in tasks``), ``formula_bytes`` (4 per scalar, NaN if the
    sizes are unknown) and ``source``, the source of the sizes: ``factors`` (the shapes in the files
    of the method's trajectories or, if it has none, of the others if they agree), ``vanilla`` (the
    measured state of vanilla, P_r plus a file's header; W and d_in are then unknown) or ``unknown``
    (also if the trajectories of a method differ, for example in rank).

    Bytes on disk and by formula differ because the disk stores the same state in other forms: a
    merged model as the factors of the tasks since its last copy, an anchor's reference not again if
    it equals the factors, and a fresh adapter not at all, since the seed determines it.
    Raises HoldfastError for a method and seed that occurs twice.
    Source: tab:method-taxonomy, eq. app-lora-storage.
    """
    columns = ["dataset", "method", "horizon", "measured_bytes"]
    columns += ["formula", "growth", "formula_bytes", "source"]
    rows = []
    for dataset, part in final_runs(cells).groupby("dataset", sort=False):
        sizes = _found_shapes(part)
        for method, runs in part.groupby("method", sort=False):
            horizon, measured = runs["horizon"].iloc[0], runs["state_bytes"].mean(skipna=False)
            shapes, source = _known_shapes(str(method), sizes, part)
            text, scalars, growth = formula(str(method), int(horizon), shapes)
            size = BYTES * scalars
            rows.append((dataset, method, horizon, measured, text, growth, size, source))
    return pd.DataFrame(rows, columns=columns)


def formula(method: str, tasks: int, shapes: Shapes) -> tuple[str, float, str]:
    """A method's persistent state as the paper counts it: as text, in scalars, and its growth.

    Replay and self-distillation keep nothing but the last model, which is counted already; a weight
    anchor keeps a reference and an importance for each trainable scalar.
    Source: tab:method-taxonomy.
    """
    dense = {"W": shapes.dense} if has(method, "merge") or has(method, "osrm") else {}
    terms = {**dense, "P_r": shapes.adapter}
    per_task = {}
    if has(method, "olora"):
        per_task["t P_r"] = tasks * shapes.adapter
    if has(method, "osrm"):
        per_task["t Σ d_in"] = tasks * shapes.inputs
    terms |= per_task
    if has(method, "kfac"):
        terms["S, G (kfac)"] = math.nan  # unknown from the factors: which maps share an S
    if has(method, "pairs"):
        terms["x, g (pairs)"] = math.nan  # unknown from the factors: how many positions
    if has(method, "general"):
        terms["states (general)"] = math.nan  # unknown from the factors: how many tokens
    for anchor in ("si", "online_ewc"):
        if has(method, anchor):
            terms[f"2 P_r ({anchor})"] = 2 * shapes.adapter
    growth = "linear in tasks" if per_task else "constant"
    return " + ".join(terms), sum(terms.values()), growth


def _found_shapes(cells: pd.DataFrame) -> dict[str, set[Shapes]]:
    """The sizes by method, from each trajectory's first file; its files have equal shapes."""
    sizes: dict[str, set[Shapes]] = {}
    for cell in cells.to_dict("records"):
        for file in sorted(Path(cell["path"]).glob("factors/*.safetensors"))[:1]:
            shapes = _shapes(file)
            if shapes is not None:
                sizes.setdefault(cell["method"], set()).add(shapes)
    return sizes


def _known_shapes(
    method: str, sizes: Mapping[str, set[Shapes]], cells: pd.DataFrame
) -> tuple[Shapes, str]:
    """The sizes of a method and their source, as in :func:`state_size`. cells: of its data set."""
    measured = cells.loc[cells["method"] == VANILLA, "state_bytes"].dropna()
    shapes = sizes.get(method) or set().union(*sizes.values())
    if len(shapes) == 1:
        return next(iter(shapes)), "factors"
    if not shapes and len(measured):
        return Shapes(adapter=measured.iloc[0] / BYTES), "vanilla"
    return Shapes(), "unknown"


def _shapes(file: Path) -> Shapes | None:
    """Sizes from a file of factors, A [r, d_in] and B [d_out, r] per layer; None if it has none."""
    try:
        with safe_open(regular(file), framework="numpy") as tensors:
            shapes = {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return None
    # Older runs call a layer's factors A and B, not lora_A and lora_B.
    factors = {name.replace(".lora_", "."): size for name, size in shapes.items()}
    layers = {name.rpartition(".")[0] for name in factors if "." in name}
    try:
        pairs = [(factors[f"{layer}.A"], factors[f"{layer}.B"]) for layer in sorted(layers)]
    except KeyError:
        return None
    return Shapes(
        adapter=sum(a[0] * a[1] + b[0] * b[1] for a, b in pairs),
        dense=sum(b[0] * a[1] for a, b in pairs),
        inputs=sum(a[1] for a, b in pairs),
    )
