"""Recipes of searches and suites: settings, search spaces, schedules, grids."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, model_validator

from holdfast.core.config import Config, as_override, given_settings, number_or_itself
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.mechanisms import VANILLA, name_with_settings
from holdfast.learning.method import parse_method

NONE = "none"
_SHAPE = (
    "a choice is none, a mechanism's tag, or a tag with lists of values, "
    "such as sd: {sd.strength: [1, 3]}"
)
_SET_BY_THE_STUDY = ("method", "seed", "stream.order_seed")


def override(key: str, value: Any) -> str:
    """Format a setting as ``key=value``, which ``apply_overrides`` parses to the same value.

    Text that parses as a number counts as the number, as in every override.
    Raises HoldfastError for a malformed key or one that the study itself sets, and for a value
    that cannot be formatted so: a section, a date, NaN.
    """
    if not all(key.split(".")) or "=" in key:
        raise HoldfastError(f"{key!r} is no setting; write for example replay.weight")
    if key in _SET_BY_THE_STUDY:
        raise HoldfastError(f"{key} is set by the study itself; leave it out of the settings")
    if isinstance(value, Mapping):
        raise HoldfastError(f"{key} is a section; write its settings dotted, as {key}.NAME")
    return as_override(key, number_or_itself(value))


def _overrides(settings: Mapping[str, Any], order_seed: int | None) -> list[str]:
    lines = [override(key, value) for key, value in settings.items()]
    return lines if order_seed is None else [*lines, f"stream.order_seed={order_seed}"]


def _checked(check: Callable[[Any], Any]) -> AfterValidator:
    """A pydantic validator of a function that raises HoldfastError; pydantic adds the place."""

    def validate(value: Any) -> Any:
        try:
            return check(value)
        except HoldfastError as error:
            raise ValueError(str(error)) from None

    return AfterValidator(validate)


def _values_of(key: Any, values: Any) -> list[Any]:
    """The values of one setting of a grid, numbers read as numbers.

    Raises HoldfastError unless ``values`` is a list of distinct values that ``key`` could have.
    """
    if not isinstance(key, str):
        raise HoldfastError(f"{key!r} is no setting; write for example replay.weight")
    if not isinstance(values, list) or not values:
        raise HoldfastError(f"{key} needs a list of values, at least one, such as [0.5, 0.75]")
    read = [number_or_itself(value) for value in values]
    for place, value in enumerate(read):
        override(key, value)
        if value in read[:place]:
            raise HoldfastError(f"{key} has the value {value!r} twice; keep one")
    return read


def _settings(settings: dict[str, Any]) -> dict[str, Any]:
    settings = given_settings(settings)
    _overrides(settings, None)
    return settings


def _points(grid: dict[str, Any]) -> dict[str, list[Any]]:
    for key in grid:
        if key.startswith("stream."):
            raise HoldfastError(f"{key}: all runs of a suite learn one stream; set it under set")
    return {key: _values_of(key, values) for key, values in given_settings(grid).items()}


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise HoldfastError(f"{value} is there twice; keep one")
    return values


def _tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    return _distinct(tuple(parse_method(tag).tag for tag in tags))


_Settings = Annotated[dict[str, Any], _checked(_settings)]
_Methods = Annotated[tuple[str, ...], _checked(_tags)]
_Seed = Annotated[int, Field(ge=0, lt=2**63)]
_Seeds = Annotated[tuple[_Seed, ...], Field(min_length=1), _checked(_distinct)]


@dataclass(frozen=True)
class Candidate:
    """A method with its searched settings, dotted; name: both as text, unique in a space."""

    name: str
    method: str
    settings: Mapping[str, Any]

    @property
    def overrides(self) -> list[str]:
        """The candidate's overrides of the base configuration, as dotted ``key=value``."""
        return [f"method={self.method}", *_overrides(self.settings, None)]


# One mechanism at one point of its grid: its tag, empty if it adds none, and its settings.
_Variant = tuple[str, dict[str, Any]]


def _variants(choice: Any) -> list[_Variant]:
    """The grid points of a choice; the last setting varies fastest."""
    if choice == NONE:
        return [("", {})]
    if isinstance(choice, str):
        return [(_mechanism(choice), {})]
    if not isinstance(choice, Mapping) or len(choice) != 1:
        raise HoldfastError(_SHAPE)
    [(tag, grid)] = choice.items()
    if not isinstance(tag, str) or not isinstance(grid, Mapping) or not grid:
        raise HoldfastError(_SHAPE)
    name, grid = _mechanism(tag), given_settings(grid)
    points = itertools.product(*(_values_of(key, values) for key, values in grid.items()))
    return [(name, dict(zip(grid, point, strict=True))) for point in points]


def _mechanism(tag: str) -> str:
    """The canonical tag of one mechanism; empty for ``shared``, which adds no mechanism."""
    if tag in (NONE, VANILLA):
        raise HoldfastError(
            f"{tag} is no mechanism; for its absence write {NONE}, without settings"
        )
    method = parse_method(tag)
    if len(method.anchors) + (method.allocation != "shared") > 1:
        raise HoldfastError(f"{tag} is more than one mechanism; give each a category")
    return "" if method.tag == VANILLA else method.tag


def _category(choices: tuple[Any, ...]) -> tuple[Any, ...]:
    if not choices:
        raise HoldfastError(f"a category needs at least one choice, such as {NONE} or si")
    seen: list[_Variant] = []
    for tag, settings in (variant for choice in choices for variant in _variants(choice)):
        if (tag, settings) in seen:
            repeated = name_with_settings(tag or "none or shared", settings)
            raise HoldfastError(f"{repeated} is there twice; keep one")
        seen.append((tag, settings))
    return choices


class SearchSpace(Config):
    """Categories by name, each a list of choices; a candidate takes one choice of each.

    A choice is ``none``, a mechanism's tag, or a mapping of one tag to dotted settings with lists
    of values. ``shared`` adds nothing, like ``none``. Whether a setting exists is checked only when
    it is applied to a configuration.
    Source: eq. candidate-set.
    """

    # Every key is a category, so the space has no fields of its own.
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[tuple[Any, ...], _checked(_category)]] = Field(
        init=False
    )

    def candidates(self) -> list[Candidate]:
        """The Cartesian product; the last category, and in a grid the last setting, vary fastest.

        Raises HoldfastError for a space without categories, and for categories that cannot be
        combined: a mechanism or a setting in two of them, two allocation rules, two data anchors.
        """
        categories = {
            category: [variant for choice in choices for variant in _variants(choice)]
            for category, choices in self.__pydantic_extra__.items()
        }
        if not categories:
            raise HoldfastError("space: has no category; write for example weight: [none, si]")
        owner: dict[str, str] = {}
        for category, variants in categories.items():
            for key in (key for _, settings in variants for key in settings):
                if owner.setdefault(key, category) != category:
                    raise HoldfastError(
                        f"space: {key} is set in {owner[key]} and in {category}; keep one of the "
                        "two"
                    )
        candidates = []
        for combination in itertools.product(*categories.values()):
            method = parse_method("_".join(tag for tag, _ in combination if tag) or VANILLA).tag
            settings = {key: value for _, point in combination for key, value in point.items()}
            candidates.append(Candidate(name_with_settings(method, settings), method, settings))
        return candidates


def _checked_survivors(value: Any) -> Any:
    if value == "half" or (type(value) is int and value >= 1):
        return value
    raise ValueError("write half, or how many candidates go on: 1 or more")


class Schedule(Config):
    """The horizons of a search and how many candidates reach each.

    horizons: numbers of learned tasks, increasing; survivors: for each horizon but the last, the
    number of candidates promoted from it: a count, or ``half``, rounded up.
    Source: alg:search, app:search-cuts.
    """

    horizons: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    survivors: tuple[Annotated[Literal["half"] | int, PlainValidator(_checked_survivors)], ...] = ()

    @model_validator(mode="after")
    def _makes_sense(self) -> Schedule:
        for horizon, following in itertools.pairwise(self.horizons):
            if horizon >= following:
                raise ValueError(f"horizons must increase, and {following} comes after {horizon}")
        cuts = len(self.horizons) - 1
        if len(self.survivors) != cuts:
            raise ValueError(
                f"{len(self.horizons)} horizons take {cuts} survivors, one for each horizon but "
                f"the last, and there are {len(self.survivors)}"
            )
        return self

    def sizes(self, candidates: int) -> list[int]:
        """How many of ``candidates`` reach each horizon if none fails, such as 90, 45, 23, 10.

        Raises HoldfastError when there are more survivors than candidates.
        """
        sizes = [candidates]
        for horizon, count in zip(self.horizons, self.survivors, strict=False):
            size = math.ceil(sizes[-1] / 2) if count == "half" else count
            if size > sizes[-1]:
                raise HoldfastError(
                    f"schedule: {size} survivors at horizon {horizon}, and only {sizes[-1]} "
                    "candidates reach it; lower the count or widen the space"
                )
            sizes.append(size)
        return sizes

    def cost(self, candidates: int) -> int:
        """Tasks trained for one seed when each horizon continues from the one before it.

        Source: eq. app-search-cost.
        """
        added = (now - before for before, now in itertools.pairwise((0, *self.horizons)))
        return sum(size * tasks for size, tasks in zip(self.sizes(candidates), added, strict=True))

    def exhaustive(self, candidates: int) -> int:
        """Tasks trained for one seed when every candidate is advanced to the last horizon."""
        return candidates * self.horizons[-1]


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
    order_seed: _Seed | None = None

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

    grid: Annotated[dict[str, Any], _checked(_points)] = {}


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
    order_seed: _Seed | None = None
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

        dataset: a name in ``datasets``, None when there are none. Raises HoldfastError for another.
        """
        return [*self.methods, *self._dataset(dataset).methods]

    def overrides(self, dataset: str | None = None) -> list[str]:
        """The overrides of the base shared by all methods; see :meth:`methods_on`.

        A data set's settings win.
        """
        return _overrides(self.set | self._dataset(dataset).set, self.order_seed)

    def _dataset(self, name: str | None) -> Dataset:
        if name is None:
            return Dataset()
        if name in self.datasets:
            return self.datasets[name]
        if not self.datasets:
            raise HoldfastError(f'"{name}": the suite names no data sets; set stream.name instead')
        raise HoldfastError(
            f'"{name}" is no data set of the suite; {did_you_mean(name, self.datasets)}'
        )
