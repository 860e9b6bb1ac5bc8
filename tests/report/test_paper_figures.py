"""The figures of several data sets choose each one's own methods."""

from __future__ import annotations

import pandas as pd

from holdfast.report.choice import told_curves

FINALS = {
    "symbol_qa": {
        "sd_replay_merge": 0.6,
        "si_merge": 0.5,
        "merge": 0.4,
        "replay": 0.3,
        "vanilla": 0.1,
    },
    "llm_qa": {
        "si_replay_merge": 0.7,
        "sd_replay_merge": 0.5,
        "replay": 0.4,
        "merge": 0.2,
        "vanilla": 0.1,
        "osrm": 0.05,
    },
}


def tables(finals: dict[str, dict[str, float]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Curves of two ages, and configurations, the highest Final of a data set first."""
    pairs = [(dataset, method) for dataset, methods in finals.items() for method in methods]
    configurations = pd.DataFrame(pairs, columns=["dataset", "method"])
    configurations["final"] = [finals[dataset][method] for dataset, method in pairs]
    bands = configurations.merge(pd.DataFrame({"age": [0, 1]}), how="cross")
    return bands, configurations


def drawn(finals: dict[str, dict[str, float]], dataset: str) -> list[str]:
    shown = told_curves(*tables(finals))
    return sorted(set(shown.loc[shown["dataset"] == dataset, "method"]))


def test_each_data_set_shows_its_own_strongest_and_the_leader_of_all() -> None:
    """A rule alone is a standalone mechanism; what leads in one data set only is shown there."""
    assert drawn(FINALS, "symbol_qa") == ["merge", "sd_replay_merge", "vanilla"]
    assert drawn(FINALS, "llm_qa") == ["replay", "sd_replay_merge", "si_replay_merge", "vanilla"]


def test_one_data_set_shows_as_many_as_a_reader_can_tell_apart() -> None:
    alone = {"llm_qa": FINALS["llm_qa"] | {"sd": 0.04, "si": 0.03}}
    assert drawn(alone, "llm_qa") == [
        "merge",
        "osrm",
        "replay",
        "sd_replay_merge",
        "si_replay_merge",
        "vanilla",
    ]


def test_without_a_method_in_common_nobody_leads_all() -> None:
    apart = {"symbol_qa": {"si_merge": 0.5, "si": 0.2}, "llm_qa": {"sd_merge": 0.5, "sd": 0.1}}
    assert drawn(apart, "symbol_qa") == ["si", "si_merge"]
    assert drawn(apart, "llm_qa") == ["sd", "sd_merge"]
