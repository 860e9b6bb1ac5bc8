"""The search space: its product, its names, and what is refused in one line."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.config import apply_overrides, build
from holdfast.core.errors import HoldfastError
from holdfast.studies.space import Candidate, SearchSpace, override

SD = {"sd": {"sd.strength": [1, 3]}}
REPLAY = {"replay": {"replay.weight": [0.5, 0.75], "sampling.temperature": [1.0, 1.5]}}


def space(**categories: Any) -> SearchSpace:
    return build(SearchSpace, categories, source="space")


def test_the_last_category_and_the_last_setting_are_fastest() -> None:
    candidates = space(data=["none", REPLAY], rule=["shared", "merge"]).candidates()
    assert [candidate.name for candidate in candidates] == [
        "vanilla",
        "merge",
        "replay replay.weight=0.5 sampling.temperature=1.0",
        "replay_merge replay.weight=0.5 sampling.temperature=1.0",
        "replay replay.weight=0.5 sampling.temperature=1.5",
        "replay_merge replay.weight=0.5 sampling.temperature=1.5",
        "replay replay.weight=0.75 sampling.temperature=1.0",
        "replay_merge replay.weight=0.75 sampling.temperature=1.0",
        "replay replay.weight=0.75 sampling.temperature=1.5",
        "replay_merge replay.weight=0.75 sampling.temperature=1.5",
    ]


def test_a_candidate_says_what_it_sets() -> None:
    candidate = space(function=[SD], weight=["si"]).candidates()[1]
    assert candidate == Candidate(
        name="si_sd sd.strength=3", method="si_sd", settings={"sd.strength": 3}
    )
    assert candidate.overrides == ["method=si_sd", "sd.strength=3"]


def test_tags_are_canonical_whatever_the_order() -> None:
    [candidate] = space(rule=["merged"], data=["replay"], weight=["ewc"]).candidates()
    assert candidate.method == candidate.name == "online_ewc_replay_merge"


def test_shared_may_have_settings_of_its_own() -> None:
    candidates = space(rule=[{"shared": {"lora.rank": [8, 16]}}, "merge"]).candidates()
    names = [candidate.name for candidate in candidates]
    assert names == ["vanilla lora.rank=8", "vanilla lora.rank=16", "merge"]


def test_a_space_is_recorded_as_it_is_written() -> None:
    written = {"function": ["none", SD], "data": [REPLAY], "rule": ["shared", "merge"]}
    recorded = space(**written).model_dump(mode="json")
    assert recorded == written
    assert list(recorded) == list(written)  # the order is the enumeration's
    assert space(**recorded) == space(**written)


CHOICES = {
    "weight": ["none", "si", "online_ewc", {"si": {"si.strength": [1, 2, 4]}}],
    "function": ["none", SD, {"sd": {"sd.temperature": [1.0, 2.0]}}],
    "data": ["none", REPLAY],
    "rule": ["shared", "merge", "olora", {"osrm": {"osrm.sequences": [8, 64]}}],
}


@settings(max_examples=30)
@given(
    st.fixed_dictionaries(
        {
            name: st.lists(st.sampled_from(choices), min_size=1, max_size=2, unique_by=repr)
            for name, choices in CHOICES.items()
        }
    )
)
def test_candidates_are_the_product_and_named_apart(drawn: dict[str, list[Any]]) -> None:
    sizes = {"none": 1, repr(CHOICES["weight"][3]): 3, repr(SD): 2, repr(REPLAY): 4}
    sizes |= {repr(CHOICES["function"][2]): 2, repr(CHOICES["rule"][3]): 2}
    expected = 1
    for choices in drawn.values():
        expected *= sum(sizes.get(repr(choice), 1) for choice in choices)
    candidates = space(**drawn).candidates()
    assert len(candidates) == expected
    assert len({candidate.name for candidate in candidates}) == expected


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        ({}, "has no category"),
        ({"weight": []}, "weight = []: a category needs at least one choice"),
        ({"weight": ["none", "sii"]}, '"sii" is no mechanism; did you mean si?'),
        ({"weight": ["vanilla"]}, "vanilla is no mechanism; for its absence write none"),
        ({"weight": ["si_sd"]}, "si_sd is more than one mechanism"),
        ({"weight": ["ewc", "online_ewc"]}, "online_ewc is there twice"),
        ({"rule": ["none", "shared"]}, "none or shared is there twice"),
        (
            {"function": [SD, {"sd": {"sd.strength": [3]}}]},
            "sd sd.strength=3 is there twice",
        ),
        ({"weight": [3]}, "a choice is none, a mechanism's tag, or"),
        ({"weight": [SD | REPLAY]}, "a choice is none, a mechanism's tag, or"),
        ({"weight": [{"none": {"si.strength": [1]}}]}, "none is no mechanism"),
        ({"weight": [{"si": {"si.strength": 1}}]}, "si.strength needs a list of values"),
        ({"weight": [{"si": {"si.strength": [1, 2, 1.0]}}]}, "si.strength has the value 1.0 twice"),
        (
            {"weight": [{"si": {"si.strength": [0.001, "1e-3"]}}]},
            "si.strength has the value 0.001 twice",
        ),
        ({"weight": [{"si": {"si.strength": [float("nan")]}}]}, "si.strength: nan cannot be"),
        ({"weight": [{"si": {"si": [{"strength": 1}]}}]}, "si is a section; write its settings"),
        ({"weight": [{"si": {"si.": [1]}}]}, "'si.' is no setting"),
        ({"weight": [{"si": {"method": ["sd"]}}]}, "method is set by the study itself"),
        ({"one": ["none", "si"], "two": ["si"]}, "si is named twice"),
        ({"one": ["merge"], "two": ["shared", "olora"]}, "are both allocation rules"),
        (
            {"one": [{"si": {"lora.rank": [8]}}], "two": [{"sd": {"lora.rank": [16]}}]},
            "lora.rank is set in one and in two",
        ),
    ],
)
def test_what_is_refused(categories: dict[str, Any], message: str) -> None:
    with pytest.raises(HoldfastError, match=re.escape(message)) as caught:
        space(**categories).candidates()
    assert "\n" not in str(caught.value)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(PLAIN | st.lists(st.booleans() | st.integers(), max_size=3))
def test_an_override_reads_back_as_what_it_was(value: Any) -> None:
    try:
        line = override("replay.weight", value)
    except HoldfastError:
        assert isinstance(value, str)  # YAML has no place for some control characters
        return
    read = apply_overrides({}, [line])["replay"]["weight"]
    if isinstance(value, str) and isinstance(read, float):
        assert read == float(value)
    else:
        assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("cross_entropy", "a.b=cross_entropy"),
        ("1e-3", "a.b=0.001"),  # what YAML makes of a number without a dot
        ("1", "a.b=1.0"),
        ("12:30", 'a.b="12:30"'),
        ("yes", 'a.b="yes"'),
        ("", 'a.b=""'),
        ("two words", 'a.b="two words"'),
        (None, "a.b=null"),
        (1e-5, "a.b=1e-05"),
        (["q_proj", "v_proj"], 'a.b=["q_proj","v_proj"]'),
    ],
)
def test_how_an_override_reads(value: Any, line: str) -> None:
    assert override("a.b", value) == line
