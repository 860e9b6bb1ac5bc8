"""Recipes of studies: spaces, schedules, the paper's number by number, and what is refused."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.config import apply_overrides, build
from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.recipes import Study, recipe, recipe_names, study
from holdfast.studies.recipe import (
    Candidate,
    Schedule,
    SearchRecipe,
    SearchSpace,
    SuiteRecipe,
    override,
)

SD = {"sd": {"sd.strength": [1, 3]}}
REPLAY = {"replay": {"replay.weight": [0.5, 0.75], "sampling.temperature": [1.0, 1.5]}}
WINNERS = {
    "symbol_qa": ("si_sd_replay", 0.75),
    "llm_qa": ("si_replay", 0.5),
    "real_qa": ("si_replay", 0.75),
}


def space(**categories: Any) -> SearchSpace:
    return build(SearchSpace, categories, source="space")


def search(name: str) -> SearchRecipe:
    return build(SearchRecipe, study("search", name), source=name)


def suite(name: str) -> SuiteRecipe:
    return build(SuiteRecipe, study("suite", name), source=name)


def factorial() -> set[str]:
    factors = ("si", "sd", "replay", "merge")
    subsets = itertools.product(*(("", factor) for factor in factors))
    return {"_".join(filter(None, chosen)) or "vanilla" for chosen in subsets}


@pytest.mark.parametrize(
    ("categories", "names"),
    [
        (  # the last category and the last setting are fastest
            {"data": ["none", REPLAY], "rule": ["shared", "merge"]},
            [
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
            ],
        ),
        (
            {"rule": ["merged"], "data": ["replay"], "weight": ["ewc"]},
            ["online_ewc_replay_merge"],
        ),
        (
            {"rule": [{"shared": {"lora.rank": [8, 16]}}, "merge"]},
            ["vanilla lora.rank=8", "vanilla lora.rank=16", "merge"],
        ),
        (
            {"function": [SD, {"sd": {"sd.temperature": [1.0, 2.0, 4.0]}}]},
            [f"sd sd.strength={at}" for at in (1, 3)]
            + [f"sd sd.temperature={at}" for at in (1.0, 2.0, 4.0)],
        ),
    ],
)
def test_candidates_are_the_product_in_order(categories: dict[str, Any], names: list[str]) -> None:
    assert [candidate.name for candidate in space(**categories).candidates()] == names


def test_a_candidate_says_what_it_sets() -> None:
    candidate = space(function=[SD], weight=["si"]).candidates()[1]
    assert candidate == Candidate("si_sd sd.strength=3", "si_sd", {"sd.strength": 3})
    assert candidate.overrides == ["method=si_sd", "sd.strength=3"]


def test_a_space_is_recorded_as_it_is_written() -> None:
    written = {"function": ["none", SD], "data": [REPLAY], "rule": ["shared", "merge"]}
    recorded = space(**written).model_dump(mode="json")
    assert list(recorded.items()) == list(written.items())  # the order is the enumeration's


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


@given(
    horizons=st.sets(st.integers(1, 60), min_size=1, max_size=6).map(sorted),
    candidates=st.integers(1, 200),
)
def test_halving_is_never_dearer_and_leaves_someone(horizons: list[int], candidates: int) -> None:
    halves = ("half",) * (len(horizons) - 1)
    schedule = Schedule(horizons=tuple(horizons), survivors=halves)
    sizes = schedule.sizes(candidates)
    assert len(sizes) == len(horizons)
    assert all(2 * after - before in (0, 1) for before, after in itertools.pairwise(sizes))
    assert sizes[-1] >= 1
    # Counted from the other side: what one candidate trained when it left.
    leaving = [now - after for now, after in itertools.pairwise([*sizes, 0])]
    assert schedule.cost(candidates) == sum(map(math.prod, zip(leaving, horizons, strict=True)))
    assert schedule.cost(candidates) <= schedule.exhaustive(candidates)


def test_more_survivors_than_are_left() -> None:
    schedule = Schedule(horizons=(10, 20, 50), survivors=("half", 6))
    assert schedule.sizes(11) == [11, 6, 6]
    with pytest.raises(HoldfastError, match="6 survivors at horizon 20, and only 5 candidates"):
        schedule.sizes(10)


def test_what_there_is() -> None:
    assert recipe_names("search") == ["lasting", "paper", "small", "temperature"]
    assert recipe_names("suite") == ["factorial", "lasting", "paper"]
    with pytest.raises(HoldfastError, match='"papr" is no recipe for a search; did you mean paper'):
        study("search", "papr")


def test_the_papers_search() -> None:
    paper = search("paper")
    candidates = paper.space.candidates()
    assert len({candidate.name for candidate in candidates}) == len(candidates) == 90
    assert candidates[0].name == candidates[0].method == "vanilla"
    assert candidates[29].name == (
        "sd_replay_merge sd.strength=3 replay.weight=0.75 sampling.temperature=1.5"
    )
    assert candidates[30].name == "online_ewc"
    assert candidates[-1].name == (
        "si_sd_replay_merge sd.strength=3 replay.weight=0.75 sampling.temperature=1.5"
    )
    # 17 of its 24 compositions were compared with the final runs (app:search-order).
    methods = {candidate.method for candidate in candidates}
    assert len(methods) == 3 * 2 * 2 * 2
    assert len(methods & set(suite("paper").methods)) == 17
    assert paper.schedule.horizons == (10, 20, 50, 100)
    assert paper.schedule.sizes(90) == [90, 45, 23, 10]
    assert (paper.schedule.cost(90), paper.schedule.exhaustive(90)) == (2540, 9000)
    assert paper.seeds == (41, 42, 43)
    assert paper.overrides == ["stream.order_seed=1234"]


@pytest.mark.parametrize("name", recipe_names("search"))
def test_candidates_become_configurations_that_differ(name: str) -> None:
    chosen = search(name)
    candidates = chosen.space.candidates()
    configs = [
        RunConfig.of(recipe(chosen.base), [*chosen.overrides, *candidate.overrides])
        for candidate in candidates
    ]
    assert len({str(config.numbers()) for config in configs}) == len(candidates)
    assert [config.method for config in configs] == [candidate.method for candidate in candidates]
    assert {config.stream.order_seed for config in configs} == {chosen.order_seed}
    assert max(chosen.schedule.horizons) == configs[0].stream.tasks


@pytest.mark.parametrize("dataset", WINNERS)
def test_the_papers_21_methods(dataset: str) -> None:
    paper = suite("paper")
    winner, weight = WINNERS[dataset]
    methods = paper.methods_on(dataset)
    assert len(methods) == 21
    assert set(methods) == (
        factorial() | {"online_ewc", "olora", "osrm"} | {f"{winner}_olora", f"{winner}_osrm"}
    )
    overrides = [f"method={winner}_olora", *paper.overrides(dataset)]
    config = RunConfig.of(recipe(paper.base, dataset), overrides)
    assert config.stream.name == dataset
    assert config.stream.order_seed is None
    # tab:implementation-hparams, the registered values of what was searched
    assert (config.replay.weight, config.sampling.temperature) == (weight, 1.5)
    assert config.sd.strength == 1
    assert paper.seeds == (41, 42, 43)


def test_the_factorial() -> None:
    methods = suite("factorial").methods_on()
    assert len(methods) == 16
    assert set(methods) == factorial()
    assert suite("factorial").overrides() == []
    assert len(suite("factorial").seeds) == 3


def test_a_data_set_goes_before_the_suite() -> None:
    values = {
        "base": "paper",
        "set": {"replay.weight": 0.1, "optim.epochs": 2},
        "methods": ["merged_si"],
        "seeds": [1],
        "order_seed": 7,
        "datasets": {"mine": {"methods": ["sd"], "set": {"replay.weight": 0.9}}},
    }
    mine = build(SuiteRecipe, values, source="mine.yaml")
    assert mine.methods_on("mine") == ["si_merge", "sd"]
    assert mine.overrides("mine") == ["replay.weight=0.9", "optim.epochs=2", "stream.order_seed=7"]
    with pytest.raises(HoldfastError, match=r'"mien" is no data set .* did you mean mine'):
        mine.overrides("mien")
    with pytest.raises(HoldfastError, match='"symbol_qa": the suite names no data sets'):
        suite("factorial").overrides("symbol_qa")


def changed(kind: Study, **values: Any) -> dict[str, Any]:
    """The paper's recipe with other values; None takes the key away."""
    merged = study(kind, "paper") | values
    return {key: value for key, value in merged.items() if value is not None}


def spaced(**categories: Any) -> dict[str, Any]:
    return changed("search", space=categories)


def scheduled(*horizons: int, **survivors: Any) -> dict[str, Any]:
    return changed("search", schedule={"horizons": list(horizons), **survivors})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (spaced(), "has no category"),
        (spaced(weight=[]), "weight = []: a category needs at least one choice"),
        (spaced(weight=["none", "sii"]), '"sii" is no mechanism; did you mean si?'),
        (spaced(weight=["vanilla"]), "vanilla is no mechanism; for its absence write none"),
        (spaced(weight=["si_sd"]), "si_sd is more than one mechanism"),
        (spaced(weight=["ewc", "online_ewc"]), "online_ewc is there twice"),
        (spaced(rule=["none", "shared"]), "none or shared is there twice"),
        (spaced(function=[SD, {"sd": {"sd.strength": [3]}}]), "sd sd.strength=3 is there twice"),
        (spaced(weight=[3]), "a choice is none, a mechanism's tag, or"),
        (spaced(weight=[SD | REPLAY]), "a choice is none, a mechanism's tag, or"),
        (spaced(weight=[{"none": {"si.strength": [1]}}]), "none is no mechanism"),
        (spaced(weight=[{"si": {"si.strength": 1}}]), "si.strength needs a list of values"),
        (spaced(weight=[{"si": {"si.strength": [1, 1.0]}}]), "si.strength has the value 1.0 twice"),
        (spaced(weight=[{"si": {"si.strength": [0.001, "1e-3"]}}]), "has the value 0.001 twice"),
        (spaced(weight=[{"si": {"si.strength": [math.nan]}}]), "si.strength: nan cannot be"),
        (spaced(weight=[{"si": {"si": [{"strength": 1}]}}]), "si is a section; write its settings"),
        (spaced(weight=[{"si": {"si.": [1]}}]), "'si.' is no setting"),
        (spaced(weight=[{"si": {"method": ["sd"]}}]), "method is set by the study itself"),
        (spaced(one=["none", "si"], two=["si"]), "si is named twice"),
        (spaced(one=["merge"], two=["shared", "olora"]), "are both allocation rules"),
        (
            spaced(one=[{"si": {"lora.rank": [8]}}], two=[{"sd": {"lora.rank": [16]}}]),
            "lora.rank is set in one and in two",
        ),
        (spaced(a=["none", "si"]), "10 survivors at horizon 50, and only 1"),
        (scheduled(2, 4), "2 horizons take 1 survivors"),
        (scheduled(2, 4, survivors=[3, 2]), "and there are 2"),
        (scheduled(), "horizons = []"),
        (scheduled(0), "horizons.0 = 0"),
        (scheduled(4, 4, survivors=[1]), "horizons must increase, and 4 comes after 4"),
        (scheduled(2, 4, survivors=[0]), "survivors.0 = 0: write half, or how many"),
        (scheduled(2, 4, survivors=[True]), "survivors = [true]: is no number"),
        (scheduled(2, 4, survivors=[1.5]), "survivors.0 = 1.5: write half"),
        (changed("search", seeds=[]), "seeds = []"),
        (changed("search", seeds=[41, 41]), "41 is there twice"),
        (changed("search", seeds=[-1]), "seeds.0 = -1"),
        (changed("search", order_seed=-1), "order_seed = -1"),
        (changed("search", set={"stream": {"tasks": 8}}), "stream is a section"),
        (changed("search", set={"seed": 8}), "seed is set by the study itself"),
        (changed("search", sede=[1]), "unknown key sede; did you mean seeds?"),
        (changed("search", seeds=None, seed=[1]), "unknown key seed; did you mean seeds?"),
        (changed("search", seeds=None), "mine.yaml: seeds is missing; write it"),
        (changed("suite", methods=[]), "methods = []"),
        (changed("suite", methods=["si", "sdd"]), '"sdd" is no mechanism; did you mean sd?'),
        (changed("suite", methods=["si_sd", "sd_si"]), "si_sd is there twice"),
        (changed("suite", datasets={"mine": {"methods": ["merge"]}}), "datasets.mine: merge is"),
        (changed("suite", datasets={"mine": {"set": {"method": "si"}}}), "set by the study itself"),
        (changed("suite", grid={"stream.tasks": [1, 2]}), "all runs of a suite learn one stream"),
        (changed("suite", grid={"optim.lr": 1}), "optim.lr needs a list of values"),
        (
            changed("suite", grid={"optim.lr": [1]}, set={"optim.lr": 2}),
            "optim.lr is in set and in grid",
        ),
    ],
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    kind = SearchRecipe if "space" in values else SuiteRecipe
    with pytest.raises(HoldfastError, match=re.escape(message)) as caught:
        build(kind, values, source="mine.yaml")
    assert str(caught.value).startswith("mine.yaml: ")
    assert "\n" not in str(caught.value)
