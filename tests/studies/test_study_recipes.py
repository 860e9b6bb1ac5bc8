"""The studies that come along: the paper's candidates, costs and methods, number by number."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from holdfast.core.config import build
from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.learning.method import parse_method
from holdfast.recipes import Study, recipe, recipe_names, study
from holdfast.studies.recipe import SearchRecipe, SuiteRecipe

WINNERS = {
    "symbol_qa": ("si_sd_replay", 0.75),
    "llm_qa": ("si_replay", 0.5),
    "real_qa": ("si_replay", 0.75),
}


def search(name: str) -> SearchRecipe:
    return build(SearchRecipe, study("search", name), source=name)


def suite(name: str) -> SuiteRecipe:
    return build(SuiteRecipe, study("suite", name), source=name)


def factorial() -> set[str]:
    factors = ("si", "sd", "replay", "merge")
    subsets = itertools.product(*(("", factor) for factor in factors))
    return {"_".join(filter(None, chosen)) or "vanilla" for chosen in subsets}


def test_what_there_is() -> None:
    assert recipe_names("search") == ["lasting", "paper", "small", "temperature"]
    assert recipe_names("suite") == ["factorial", "lasting", "paper"]
    with pytest.raises(HoldfastError, match='"papr" is no recipe for a search; did you mean paper'):
        study("search", "papr")


def test_the_papers_candidates() -> None:
    candidates = search("paper").space.candidates()
    assert len(candidates) == 90
    assert len({candidate.name for candidate in candidates}) == 90
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


def test_the_papers_search() -> None:
    paper = search("paper")
    assert paper.schedule.horizons == (10, 20, 50, 100)
    assert paper.schedule.sizes(90) == [90, 45, 23, 10]
    assert paper.schedule.cost(90) == 2540
    assert paper.schedule.exhaustive(90) == 9000
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
    assert config.replay.weight == weight
    assert config.sampling.temperature == 1.5
    assert config.sd.strength == 1
    assert paper.seeds == (41, 42, 43)


def test_the_factorial() -> None:
    methods = suite("factorial").methods_on()
    assert len(methods) == 16
    assert set(methods) == factorial() == {parse_method(tag).tag for tag in methods}
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


def test_which_data_set() -> None:
    with pytest.raises(HoldfastError, match="choose one of symbol_qa, llm_qa, real_qa"):
        suite("paper").methods_on()
    with pytest.raises(HoldfastError, match=r'"realqa" is no data set .* did you mean real_qa'):
        suite("paper").overrides("realqa")
    with pytest.raises(HoldfastError, match='"symbol_qa": the suite names no data sets'):
        suite("factorial").overrides("symbol_qa")


def changed(kind: Study, **values: Any) -> dict[str, Any]:
    return study(kind, "paper") | values


def _without(kind: Study, key: str) -> dict[str, Any]:
    return {name: value for name, value in study(kind, "paper").items() if name != key}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (changed("search", seeds=[]), "seeds = []"),
        (changed("search", seeds=[41, 41]), "41 is there twice"),
        (changed("search", seeds=[-1]), "seeds.0 = -1"),
        (changed("search", order_seed=-1), "order_seed = -1"),
        (changed("search", set={"stream": {"tasks": 8}}), "stream is a section"),
        (changed("search", set={"seed": 8}), "seed is set by the study itself"),
        (changed("search", space={"a": ["none", "si"]}), "10 survivors at horizon 50, and only 1"),
        (changed("search", sede=[1]), "unknown key sede; did you mean seeds?"),
        ({"seed": [1], **_without("search", "seeds")}, "unknown key seed; did you mean seeds?"),
        (_without("search", "seeds"), "mine.yaml: seeds is missing; write it"),
        (changed("suite", methods=[]), "methods = []"),
        (changed("suite", methods=["si", "sdd"]), '"sdd" is no mechanism; did you mean sd?'),
        (changed("suite", methods=["si_sd", "sd_si"]), "si_sd is there twice"),
        (changed("suite", datasets={"mine": {"methods": ["merge"]}}), "datasets.mine: merge is"),
        (changed("suite", datasets={"mine": {"set": {"method": "si"}}}), "set by the study itself"),
    ],
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    kind = SearchRecipe if "space" in values else SuiteRecipe
    with pytest.raises(HoldfastError, match=re.escape(message)) as caught:
        build(kind, values, source="mine.yaml")
    assert str(caught.value).startswith("mine.yaml: ")
    assert "\n" not in str(caught.value)
