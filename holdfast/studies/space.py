"""The search space: categories of mechanisms with grids of settings, and their product."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from holdfast.core.config import Config, as_override, given_settings
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import VANILLA, name_with_settings
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


# One mechanism at one point of its grid: its tag, empty if it adds none, and its settings.
_Variant = tuple[str, dict[str, Any]]


def checked(check: Callable[[Any], Any]) -> AfterValidator:
    """A pydantic validator of a function that raises HoldfastError; pydantic adds the place."""

    def validate(value: Any) -> Any:
        try:
            return check(value)
        except HoldfastError as error:
            raise ValueError(str(error)) from None

    return AfterValidator(validate)


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
        return [("", {})]
    if isinstance(choice, str):
        return [(_mechanism(choice), {})]
    if not isinstance(choice, Mapping) or len(choice) != 1:
        raise HoldfastError(_SHAPE)
    [(tag, grid)] = choice.items()
    if not isinstance(tag, str) or not isinstance(grid, Mapping) or not grid:
        raise HoldfastError(_SHAPE)
    name, grid = _mechanism(tag), given_settings(grid)
    points = itertools.product(*(values_of(key, values) for key, values in grid.items()))
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


def values_of(key: Any, values: Any) -> list[Any]:
    """The values of one setting of a grid, numbers read as numbers.

    Raises HoldfastError unless ``values`` is a list of distinct values that ``key`` could have.
    """
    if not isinstance(key, str):
        raise HoldfastError(f"{key!r} is no setting; write for example replay.weight")
    if not isinstance(values, list) or not values:
        raise HoldfastError(f"{key} needs a list of values, at least one, such as [0.5, 0.75]")
    read = [_number_or_itself(value) for value in values]
    for place, value in enumerate(read):
        override(key, value)
        if value in read[:place]:
            raise HoldfastError(f"{key} has the value {value!r} twice; keep one")
    return read


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
    __pydantic_extra__: dict[str, Annotated[tuple[Any, ...], checked(_category)]] = Field(
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
