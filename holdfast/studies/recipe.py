"""Recipes: the configurations of searches and suites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from holdfast.core.config import Config, given_settings
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.learning.method import parse_method
from holdfast.studies.halving import Schedule
from holdfast.studies.space import SearchSpace, checked, override, values_of


def _settings(settings: dict[str, Any]) -> dict[str, Any]:
    settings = given_settings(settings)
    _overrides(settings, None)
    return settings


def _points(grid: dict[str, Any]) -> dict[str, list[Any]]:
    for key in grid:
        if key.startswith("stream."):
            raise HoldfastError(f"{key}: all runs of a suite learn one stream; set it under set")
    return {key: values_of(key, values) for key, values in given_settings(grid).items()}


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise HoldfastError(f"{value} is there twice; keep one")
    return values


def _tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    return _distinct(tuple(parse_method(tag).tag for tag in tags))


_Settings = Annotated[dict[str, Any], checked(_settings)]
_Methods = Annotated[tuple[str, ...], checked(_tags)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]
_Seeds = Annotated[tuple[_Seed, ...], Field(min_length=1), checked(_distinct)]
_OrderSeed = _Seed | None


class SearchRecipe(Config):
    """A search: its candidates, their schedule, and the base configuration.

    base: the recipe that all settings override; set: dotted settings of all candidates;
    order_seed: seed of the order of tasks, the same for all seeds; None keeps the base's.
    Source: alg:search.
    """

    base: str
    set: _Settings = {}
    space: SearchSpace
    schedule: Schedule
    seeds: _Seeds
    order_seed: _OrderSeed = None

    @model_validator(mode="after")
    def _fits(self) -> SearchRecipe:
        try:
            self.schedule.sizes(len(self.space.candidates()))
        except HoldfastError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def overrides(self) -> list[str]:
        """The overrides of the base shared by all candidates; a candidate's own come after."""
        return _overrides(self.set, self.order_seed)


class Dataset(Config):
    """A suite's additional methods and dotted settings on one data set."""

    methods: _Methods = ()
    set: _Settings = {}


class Grid(Config):
    """grid: dotted settings, each with the list of its values."""

    grid: Annotated[dict[str, Any], checked(_points)] = {}


class SuiteRecipe(Grid):
    """A suite: several methods, each with every seed, on one data set or on several.

    base, set, order_seed: as in a search; datasets: by name; empty for the stream of the base.
    grid: settings with their values, crossed with each other and with the methods.
    Source: sec:results.
    """

    base: str
    set: _Settings = {}
    methods: _Methods = Field(min_length=1)
    seeds: _Seeds
    order_seed: _OrderSeed = None
    datasets: dict[str, Dataset] = {}

    @model_validator(mode="after")
    def _says_it_once(self) -> SuiteRecipe:
        places = {"set": self.set}
        places |= {f"datasets.{name}.set": dataset.set for name, dataset in self.datasets.items()}
        for key in self.grid:
            for place, settings in places.items():
                if key in settings:
                    raise ValueError(f"{key} is in {place} and in grid; keep one of the two")
        for name, dataset in self.datasets.items():
            for method in dataset.methods:
                if method in self.methods:
                    raise ValueError(
                        f"datasets.{name}: {method} is among the methods of all data sets; keep one"
                    )
        return self

    def methods_on(self, dataset: str | None = None) -> list[str]:
        """The tags of all methods on a data set, the suite's before the data set's own.

        dataset: a name in ``datasets``, None when there are none.
        Raises HoldfastError for any other.
        """
        return [*self.methods, *self._dataset(dataset).methods]

    def overrides(self, dataset: str | None = None) -> list[str]:
        """The overrides of the base shared by all methods; a data set's settings win.

        dataset, raises: as for :meth:`methods_on`.
        """
        return _overrides(self.set | self._dataset(dataset).set, self.order_seed)

    def _dataset(self, name: str | None) -> Dataset:
        if name is None and not self.datasets:
            return Dataset()
        if name in self.datasets:
            return self.datasets[name]
        if not self.datasets:
            raise HoldfastError(f'"{name}": the suite names no data sets; set stream.name instead')
        if name is None:
            names = ", ".join(self.datasets)
            raise HoldfastError(f"the suite has several data sets; choose one of {names}")
        raise HoldfastError(
            f'"{name}" is no data set of the suite; {did_you_mean(name, self.datasets)}'
        )


def _overrides(settings: Mapping[str, Any], order_seed: int | None) -> list[str]:
    lines = [override(key, value) for key, value in settings.items()]
    return lines if order_seed is None else [*lines, f"stream.order_seed={order_seed}"]
