"""The search space: categories of mechanisms with grids of settings, and their product."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from holdfast.core.config import Config, as_override
from holdfast.core.errors import HoldfastError
from holdfast.core.former import given_settings
from holdfast.core.mechanisms import VANILLA
from holdfast.learning.method import parse_method

NONE = "none"
_SHAPE = (
    "a choice is none, a mechanism's tag, or a tag with lists of values, "
    "such as sd: {sd.strength: [1, 3]}"
)
_SET_BY_THE_STUDY = ("method", "seed", "stream.order_seed")


@dataclass(frozen=True)
class Candidate:
    """A method with its searched settings, dotted; name: both as text, unique in a space."""

    name: str
    method: str
    settings: Mapping[str, Any]

    @property
    def overrides(self) -> list[str]:
        """The candidate's overrides of the base configuration, as dotted ``key=value``."""
        return [f"method={self.method}", *(override(*pair) for pair in self.settings.items())]


@dataclass(frozen=True)
class _Variant:
    """One mechanism at one point of its grid; an empty tag adds no mechanism."""

    tag: str
    settings: dict[str, Any]


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
    return as_override(key, _number_or_itself(value))


def _number_or_itself(value: Any) -> Any:
    # YAML 1.1 reads 1e-3 as text because its mantissa has no dot.
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _variants(choice: Any) -> list[_Variant]:
    """The grid points of a choice; the last setting varies fastest."""
    if choice == NONE:
        return [_Variant("", {})]
    if isinstance(choice, str):
        return [_Variant(_mechanism(choice), {})]
    if not isinstance(choice, Mapping) or len(choice) != 1:
        raise ValueError(_SHAPE)
    [(tag, grid)] = choice.items()
    if not isinstance(tag, str) or not isinstance(grid, Mapping) or not grid:
        raise ValueError(_SHAPE)
    name = _mechanism(tag)
    try:
        grid = given_settings(grid)
    except HoldfastError as error:
        raise ValueError(str(error)) from None
    points = itertools.product(*(values_of(key, values) for key, values in grid.items()))
    return [_Variant(name, dict(zip(grid, point, strict=True))) for point in points]


def _mechanism(tag: str) -> str:
    """The canonical tag of one mechanism; empty for ``shared``, which adds no mechanism."""
    if tag in (NONE, VANILLA):
        raise ValueError(f"{tag} is no mechanism; for its absence write {NONE}, without settings")
    try:
        method = parse_method(tag)
    except HoldfastError as error:
        raise ValueError(str(error)) from None
    if len(method.anchors) + (method.allocation != "shared") > 1:
        raise ValueError(f"{tag} is more than one mechanism; give each a category")
    return "" if method.tag == VANILLA else method.tag


def values_of(key: Any, values: Any) -> list[Any]:
    """The values of one setting of a grid, numbers read as numbers.

    Raises ValueError for what is no list of distinct values that ``key`` could have.
    """
    if not isinstance(key, str):
        raise ValueError(f"{key!r} is no setting; write for example replay.weight")
    if not isinstance(values, list) or not values:
        raise ValueError(f"{key} needs a list of values, at least one, such as [0.5, 0.75]")
    read = [_number_or_itself(value) for value in values]
    for place, value in enumerate(read):
        try:
            override(key, value)
        except HoldfastError as error:
            raise ValueError(str(error)) from None
        if value in read[:place]:
            raise ValueError(f"{key} has the value {value!r} twice; keep one")
    return read


def _checked_choice(choice: Any) -> Any:
    _variants(choice)
    return choice


def _checked_category(choices: tuple[Any, ...]) -> tuple[Any, ...]:
    if not choices:
        raise ValueError(f"a category needs at least one choice, such as {NONE} or si")
    seen: list[_Variant] = []
    for choice in choices:
        for variant in _variants(choice):
            if variant in seen:
                repeated = named(variant.tag or "none or shared", variant.settings)
                raise ValueError(f"{repeated} is there twice; keep one")
            seen.append(variant)
    return choices


_Choice = Annotated[Any, AfterValidator(_checked_choice)]
_Category = Annotated[tuple[_Choice, ...], AfterValidator(_checked_category)]


class SearchSpace(Config):
    """Categories by name, each a list of choices; a candidate takes one choice of each.

    A choice is ``none``, a mechanism's tag, or a mapping of one tag to dotted settings with lists
    of values. ``shared`` adds nothing, like ``none``. Whether a setting exists is checked only when
    it is applied to a configuration.
    Source: eq. candidate-set.
    """

    # Every key is a category, so the space has no fields of its own.
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _Category] = Field(init=False)

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
        _refuse_shared_settings(categories)
        return [_candidate(chosen) for chosen in itertools.product(*categories.values())]


def _refuse_shared_settings(categories: Mapping[str, list[_Variant]]) -> None:
    owner: dict[str, str] = {}
    for category, variants in categories.items():
        for key in (key for variant in variants for key in variant.settings):
            if owner.setdefault(key, category) != category:
                raise HoldfastError(
                    f"space: {key} is set in {owner[key]} and in {category}; keep one of the two"
                )


def _candidate(chosen: tuple[_Variant, ...]) -> Candidate:
    tag = "_".join(variant.tag for variant in chosen if variant.tag)
    method = parse_method(tag or VANILLA).tag
    settings = {key: value for variant in chosen for key, value in variant.settings.items()}
    return Candidate(named(method, settings), method, settings)


def named(tag: str, settings: Mapping[str, Any]) -> str:
    """A tag and its settings as text: ``merge optim.lr=0.001``."""
    return " ".join((tag, *(override(*pair) for pair in settings.items())))
