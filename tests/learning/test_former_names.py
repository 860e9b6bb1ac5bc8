"""Sections under their former names: read, told once, refused beside the present name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from holdfast import HoldfastError, RunConfig
from holdfast.core.config import _tell_of_former_name, build
from holdfast.core.mechanisms import BY_TAG
from holdfast.studies.recipe import SearchRecipe, SuiteRecipe
from tests.refused import line_of

NAMES = {"replay": "data", "sd": "function", "olora": "o_lora", "osrm": "sequential_osrm"}

ONE_SETTING = {
    "data": ("weight", 0.7),
    "function": ("strength", 3.0),
    "o_lora": ("overlap", 0.1),
    "sequential_osrm": ("sequences", 5),
}


@pytest.fixture(autouse=True)
def untold() -> Iterator[None]:
    _tell_of_former_name.cache_clear()
    yield
    _tell_of_former_name.cache_clear()


@pytest.mark.parametrize(("now", "before"), NAMES.items())
def test_a_former_name_is_read_everywhere_and_told_once(
    now: str, before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert now in BY_TAG
    key, value = ONE_SETTING[before]
    expected = RunConfig.of({}, [f"{now}.{key}={value}"])
    assert getattr(getattr(expected, now), key) == value
    assert capsys.readouterr().err == ""
    sections: dict[str, Any] = {before: {key: value}}
    assert RunConfig.of(sections) == expected
    assert capsys.readouterr().err == (
        f"holdfast: the section {before} is called {now} now; write {now}\n"
    )
    assert RunConfig(**sections) == expected
    assert RunConfig.of({}, [f"{before}.{key}={value}"]) == expected
    assert RunConfig.of({}, [f"{before}={{{key}: {value}}}"]) == expected
    assert RunConfig.of({now: {key: 1}}, [f"{before}.{key}={value}"]) == expected
    assert RunConfig.of({before: {key: 1}}, [f"{now}.{key}={value}"]) == expected
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("values", "overrides"),
    [
        ({"data": {"weight": 0.5}, "replay": {"temperature": 1}}, []),
        ({}, ["data.weight=0.5", "replay.temperature=1"]),
    ],
)
def test_both_names_are_refused_in_one_line(
    values: Mapping[str, Any], overrides: list[str]
) -> None:
    assert line_of(RunConfig.of, values, overrides) == (
        "data and replay name the same section of the configuration; write all its settings "
        "under replay"
    )


def test_studies_read_the_former_names(capsys: pytest.CaptureFixture[str]) -> None:
    suite = {"base": "paper", "methods": ["replay"], "seeds": [1]}
    read = build(
        SuiteRecipe,
        {**suite, "set": {"data.weight": 0.5}, "grid": {"function.strength": [1, 3]}},
        source="suite",
    )
    assert (read.set, read.grid) == ({"replay.weight": 0.5}, {"sd.strength": [1, 3]})
    search = {"base": "paper", "schedule": {"horizons": [1]}, "seeds": [1]}
    space = {"data": [{"replay": {"data.weight": [0.5]}}]}  # a category has any name
    candidates = build(SearchRecipe, {**search, "space": space}, source="search").space.candidates()
    assert [candidate.name for candidate in candidates] == ["replay replay.weight=0.5"]
    assert len(capsys.readouterr().err.splitlines()) == 2
    both = {"data.weight": 0.5, "replay.loss": "soft"}
    with pytest.raises(HoldfastError, match=r"suite: set = .*data and replay name the same"):
        build(SuiteRecipe, {**suite, "set": both}, source="suite")
