"""The paper's tables as data, as published: percentages and percentage points.

One CSV file per table, named by its label with ``_`` for every ``:`` and ``-``.

Where the paper's text contradicts its tables, the tables count: on LLM-QA ``online_ewc`` and ``si``
have a Diag below 96 too (app:res-failures); deviations of Final with replay are 0.3 to 13.2, and
5.9 without it for ``si_sd_merge`` on Symbol-QA (app:res-seeds); ``olora`` retains 13.9 on Real-QA,
and ``si_replay_olora`` 42.2 on LLM-QA and 56.4 on Real-QA (sec:compositions).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from holdfast.core.errors import HoldfastError

DATASETS = ("symbol_qa", "llm_qa", "real_qa")
METRICS = ("final", "diag", "forget", "w10", "w50")
HORIZON = 100
# app:res-anova: the numbers in the captions of its three tables.
LABELS = (
    "tab:anova",
    "tab:rung-vs-canonical",
    "tab:app-factorial-ranks",
    "tab:app-all-symbol-qa",
    "tab:app-all-llm-qa",
    "tab:app-all-real-qa",
    "app:res-anova",
    "tab:app-anova-symbol-qa",
    "tab:app-anova-llm-qa",
    "tab:app-anova-real-qa",
    "tab:allocation-swap",
    # Numbers in the text of these sections.
    "sec:res-time",
    "app:res-capability",
)
_TEXT = {"app:res-capability": {"value": str}}  # numbers or their bounds, such as <8.0


def paper_table(label: str) -> pd.DataFrame:
    """A table by its label in the paper, such as ``tab:app-all-symbol-qa``.

    Numbers are as published, percentages; those that may be bounds are text, such as ``<1e-4``.
    Terms join factors by ``:``, methods and mechanisms have Holdfast's names.
    Raises HoldfastError for an unknown label, naming the known ones.
    """
    if label not in LABELS:
        raise HoldfastError(f'the paper has no table "{label}" here; known: {", ".join(LABELS)}')
    name = label.replace(":", "_").replace("-", "_")
    return pd.read_csv(Path(__file__).parent / f"{name}.csv", dtype=_TEXT.get(label, {"p": str}))


def dataset_table(kind: str, dataset: str) -> pd.DataFrame:
    """A table that the paper has for each data set; kind: ``all`` or ``anova``.

    Raises HoldfastError if the paper has no such data set or kind, naming the known labels.
    """
    return paper_table(f"tab:app-{kind}-{dataset.replace('_', '-')}")


def paper_cells(dataset: str) -> pd.DataFrame:
    """The paper's results on one of ``DATASETS`` as cells of a study, in shares.

    The paper publishes mean m and standard deviation s over three seeds. The three cells of each
    method hold m - s, m and m + s, which have exactly this mean and standard deviation; a single
    cell is not the result of any seed, and may lie outside [0, 1].
    Raises HoldfastError for another data set, naming the known ones.
    Source: tab:app-all-symbol-qa, tab:app-all-llm-qa, tab:app-all-real-qa.
    """
    if dataset not in DATASETS:
        raise HoldfastError(
            f"the paper has no data set {dataset}; it has {', '.join(DATASETS)}: name one of them"
        )
    table = dataset_table("all", dataset)
    parts = [
        pd.DataFrame(
            {
                "dataset": dataset,
                "method": table["configuration"],
                "seed": seed,
                "order_seed": pd.array([pd.NA] * len(table), dtype="Int64"),
                "horizon": HORIZON,
                **{name: (table[name] + sign * table[f"{name}_sd"]) / 100 for name in METRICS},
            }
        )
        for seed, sign in ((41, -1), (42, 0), (43, 1))
    ]
    return pd.concat(parts, ignore_index=True)
