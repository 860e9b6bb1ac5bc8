"""Configurations: frozen, strict, read from YAML and from dotted overrides."""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast.core.errors import HoldfastError


class Config(BaseModel):
    """Base of every configuration: immutable, unknown keys refused, defaults checked."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


AnyConfig = TypeVar("AnyConfig", bound=Config)


def build(kind: type[AnyConfig], values: Mapping[str, Any], *, source: str) -> AnyConfig:
    """Validate ``values`` as a ``kind``.

    source: where the values come from, named in the error.
    Raises HoldfastError with one line: the first wrong key, what it holds, the nearest right key.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise HoldfastError(f"{source}: {_first_problem(kind, error)}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; HoldfastError when it is missing, damaged or no mapping."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise HoldfastError(f"{path}: is no valid YAML ({reason})") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise HoldfastError(f"{path}: must hold a mapping of settings, not a list or a value")
    return values


def apply_overrides(values: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Set dotted ``key=value`` pairs on a nested mapping; values are read as YAML.

    ``["optim.lr=1e-3"]`` sets ``values["optim"]["lr"]``. Raises HoldfastError for text that is
    no ``key=value``.
    """
    result: dict[str, Any] = copy.deepcopy(dict(values))
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not all(key.split(".")):
            raise HoldfastError(f'"{override}" is no KEY=VALUE; write for example optim.lr=1e-3')
        *parents, last = key.split(".")
        place = result
        for parent in parents:
            if not isinstance(place.get(parent, {}), dict):
                raise HoldfastError(f'"{override}": {parent} is a value, not a section')
            place = place.setdefault(parent, {})
        place[last] = _scalar(text)
    return result


def sha256_of(value: Any) -> str:
    """The sha256 of a JSON value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Every dotted field in which two nested JSON values differ, as ``field: old -> new``."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in sorted(old.keys() | new.keys())
            for line in differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if old == new else [f"{path}: {json.dumps(old)} -> {json.dumps(new)}"]


def _scalar(text: str) -> Any:
    try:
        value = yaml.safe_load(text) if text else ""
    except yaml.YAMLError:
        return text
    if isinstance(value, str):
        # YAML 1.1 reads 1e-3 as text because its mantissa has no dot.
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _first_problem(kind: type[Config], error: ValidationError) -> str:
    problem = error.errors()[0]
    location = [str(part) for part in problem["loc"]]
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        known = [".".join([*location[:-1], name]) for name in _fields_at(kind, location[:-1])]
        nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
        return f"unknown key {key}; did you mean {nearest[0]}?" if nearest else f"unknown key {key}"
    message = problem["msg"].removeprefix("Value error, ")
    if not key:
        return message
    return f"{key} = {json.dumps(problem['input'], default=str)}: {message}"


def _fields_at(kind: type[BaseModel], location: list[str]) -> list[str]:
    for name in location:
        annotation = kind.model_fields[name].annotation if name in kind.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        kind = annotation
    return list(kind.model_fields)
