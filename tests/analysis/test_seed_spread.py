"""Seed spread with the data anchor and without,"""

from __future__ import annotations

import numpy as np
import pandas as pd

from holdfast.analysis.configurations import seed_spread

TEMPERATURE = "sampling.temperature"


FINALS = {
    "replay": [0.1, 0.2, 0.3],
    "si_replay_merge": [0.4, 0.44, 0.48],
    "sd_merge": [0.1, 0.1, 0.1],
    "vanilla": [0.01, 0.02, 0.03],
    "olora": [0.05],
}


def cells_of(finals: dict[str, list[float]]) -> pd.DataFrame:
    """Cells by candidate, with seeds 41, 42, ..."""
    rows = [
        {
            "study": "search",
            "dataset": "symbol_qa",
            "method": candidate.split()[0],
            "candidate": candidate,
            "seed": seed,
            "order_seed": pd.NA,
            "horizon": 100,
            "final": final,
            "path": f"{candidate} {seed}",
        }
        for candidate, values in finals.items()
        for seed, final in enumerate(values, start=41)
    ]
    return pd.DataFrame(rows)


def test_the_spread_of_every_method_and_of_the_groups() -> None:
    cells = cells_of(FINALS)
    found = seed_spread(cells)
    assert list(found["method"]) == ["replay", "si_replay_merge", "vanilla", "sd_merge"]
    assert list(found["data_anchor"]) == [True, True, False, False]
    np.testing.assert_allclose(found["final_sd"], [0.1, 0.04, 0.01, 0.0], atol=1e-15)
    np.testing.assert_allclose(found["final"], [0.2, 0.44, 0.02, 0.1])
