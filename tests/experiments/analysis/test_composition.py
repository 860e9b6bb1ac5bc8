"""Tags read and written as the learner writes them."""

from __future__ import annotations

import itertools

import pytest

from experiments.paper.analysis.factorial import FACTORS, composition, compositions
from holdfast.allocation import ALLOCATIONS as RULES
from holdfast.anchors import ANCHORS as LEARNED
from holdfast.core.mechanisms import ALLOCATIONS, ANCHORS, has
from holdfast.learning.method import parse_method


def test_the_mechanisms_are_those_of_the_learner() -> None:
    # Written down again in the analysis, which may not import them: this keeps them the same.
    assert tuple(LEARNED) == ANCHORS
    assert tuple(RULES) == ("shared", *ALLOCATIONS)


@pytest.mark.parametrize("rule", ["", *ALLOCATIONS])
def test_a_tag_is_the_learners_and_reads_back(rule: str) -> None:
    for size in range(len(ANCHORS) + 1):
        for anchors in itertools.combinations(ANCHORS, size):
            present = {*anchors, rule} - {""}
            tag = composition(sorted(present, reverse=True))
            assert parse_method(tag).tag == tag
            assert {name for name in (*ANCHORS, *ALLOCATIONS) if has(tag, name)} == present


def test_the_factorial_has_every_composition_once_with_its_levels() -> None:
    table = compositions()
    assert len(table) == 16
    assert list(table)[:4] == ["vanilla", "si", "sd", "si_sd"]
    assert list(table)[-1] == "si_sd_replay_merge"
    for tag, levels in table.items():
        assert levels == tuple(has(tag, factor) for factor in FACTORS)
    assert compositions(["merge", "sd"]) == {
        "vanilla": (False, False),
        "merge": (True, False),
        "sd": (False, True),
        "sd_merge": (True, True),
    }
