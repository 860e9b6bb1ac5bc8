"""Configurations: immutable, strictly validated, read from YAML and dotted overrides.

Also former names of sections, and the check that a directory's recorded settings are the same.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.files import read_bytes, read_json
from holdfast.core.processes import is_rank_zero

FORMAT = 2  # of config.json and study.json; format 1 was written up to commit 31412b6
_LONGEST = 100  # characters of a value in a message
_FIELDS_SHOWN = 20  # differing fields shown in a message; studies may differ in hundreds
# Former -> present name of sections of a configuration.
FORMER = {"data": "replay", "function": "sd", "o_lora": "olora", "sequential_osrm": "osrm"}


class Config(BaseModel):
    """Base of every configuration: immutable; refuses unknown keys; validates defaults.

    hints: last part of an unknown key -> what the error says instead of the most similar name.
    """

    hints: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse booleans for numeric fields, which pydantic would read as 0 or 1."""
        assert info.field_name is not None
        kinds = _kinds_in(cls.model_fields[info.field_name].annotation)
        entries = value if isinstance(value, (list, tuple)) else [value]
        has_boolean = any(isinstance(entry, bool) for entry in entries)
        if {int, float} & kinds and bool not in kinds and has_boolean:
            raise ValueError("is no number; write one")
        return value


def _kinds_in(annotation: Any) -> set[Any]:
    """An annotation, and the types that it is made of."""
    return {annotation}.union(*map(_kinds_in, get_args(annotation)))


class _Loader(yaml.SafeLoader):
    """A safe YAML loader that refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if (key.tag, str(key.value)) in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value} stands there twice", problem_mark=key.start_mark
                )
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep=deep)


AnyConfig = TypeVar("AnyConfig", bound=Config)
V = TypeVar("V")


def build(kind: type[AnyConfig], values: Mapping[str, Any], *, source: str) -> AnyConfig:
    """Validate ``values`` as a ``kind``. source: where they come from, for the error.

    Raises HoldfastError in one line: the first wrong key, its value, and what to write instead.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise HoldfastError(f"{source}: {_first_problem(kind, error)}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; HoldfastError if it is missing, damaged or no mapping."""
    try:
        values = _Loader(read_bytes(path).decode()).get_single_data()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).replace('in "<unicode string>", ', "").split())
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
        place[last] = setting_value(text)
    return result


def as_override(key: str, value: Any) -> str:
    """A setting as ``key=value``, which :func:`apply_overrides` reads as the same value.

    Raises HoldfastError for a value that cannot be written so, such as a date or NaN.
    """
    # Bare words are more readable in tables; text with white space needs quotes to show its end.
    texts = [value] if isinstance(value, str) and value.split() == [value] else []
    with contextlib.suppress(TypeError, ValueError):
        texts.append(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    for text in texts:
        if setting_value(text) == value:
            return f"{key}={text}"
    raise HoldfastError(f"{key}: {value!r} cannot be written as {key}=VALUE; choose another value")


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
    return [] if old == new else [f"{path}: {_shortened(old)} -> {_shortened(new)}"]


def _shortened(value: Any) -> str:
    """A value as JSON, cut if it is long."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def read_format(path: Path) -> Any:
    """Read a JSON file that carries :data:`FORMAT`, without its ``format`` key.

    Other JSON, which is neither a config.json nor a study.json, is returned for the caller to
    refuse. Raises HoldfastError for another format, and if the file is missing or damaged.
    """
    values = read_json(path)
    if not isinstance(values, dict):
        return values
    version = values.pop("format", None)
    if version is None and not values.keys() & {"numbers", "study"}:
        return values
    if version != FORMAT:
        older = "commit 31412b6 reads it, and goes on with it"
        advice = older if version is None else "take a newer"
        raise HoldfastError(f"{path}: was written by another version of Holdfast; {advice}")
    return values


def check_same(place: Path, what: str, recorded: Any, wanted: Mapping[str, Any]) -> None:
    """Raise HoldfastError naming the fields in which two nested JSON values differ."""
    changed = differences(recorded, dict(wanted))
    if changed:
        more = "; ..." if len(changed) > _FIELDS_SHOWN else ""
        fields = "; ".join(changed[:_FIELDS_SHOWN]) + more
        raise HoldfastError(
            f"{place}: holds {what} with other settings ({fields}); choose another directory, or "
            "repeat its settings"
        )


def given_settings(values: Mapping[str, V]) -> dict[str, V]:
    """A user's values under the present names; their keys are sections or dotted settings.

    Reports each former name once, on standard error. Raises HoldfastError if a section is given
    under both names.
    """
    if not isinstance(values, Mapping):
        raise HoldfastError(
            f'{values!r:.60} is no configuration; give nested values, such as {{"seed": 3}}'
        )
    sections = {_section(key) for key in values}
    for former, now in FORMER.items():
        if former in sections:
            if now in sections:
                raise HoldfastError(
                    f"{former} and {now} name the same section of the configuration; write all "
                    f"its settings under {now}"
                )
            _tell_of_former_name(former, now)
    return {_renamed(key): value for key, value in values.items()}


def given_overrides(overrides: Iterable[str]) -> list[str]:
    """A user's ``KEY=VALUE`` lines under the present names; otherwise as :func:`given_settings`."""
    if isinstance(overrides, (str, Mapping)):
        raise HoldfastError(
            f'{overrides!r:.60} is no list of overrides; give texts KEY=VALUE, such as ["seed=3"]'
        )
    lines = list(overrides)
    given_settings({line.partition("=")[0]: line for line in lines if "=" in line})
    return [_renamed(line) if "=" in line else line for line in lines]


def _section(key: Any) -> Any:
    return re.split(r"[.=]", key, maxsplit=1)[0] if isinstance(key, str) else key


def _renamed(key: Any) -> Any:
    section = _section(key)
    return FORMER[section] + key[len(section) :] if section in FORMER else key


@cache
def _tell_of_former_name(former: str, now: str) -> None:
    if is_rank_zero():
        sys.stderr.write(f"holdfast: the section {former} is called {now} now; write {now}\n")


def setting_value(text: str) -> Any:
    """The value of a setting that is given as text, read as YAML."""
    try:
        value = yaml.safe_load(text) if text else ""
    except yaml.YAMLError:
        return text
    return number_or_itself(value)


def number_or_itself(value: Any) -> Any:
    """The number that a text is, else the value: YAML 1.1 reads 1e-3, without a dot, as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _first_problem(kind: type[Config], error: ValidationError) -> str:
    problem = error.errors()[0]
    if problem["type"] == "missing":  # perhaps it was given under a wrong name
        unknown = (entry for entry in error.errors() if entry["type"] == "extra_forbidden")
        problem = next(unknown, problem)
    location = [str(part) for part in problem["loc"]]
    if problem["type"] == "extra_forbidden":
        return _unknown(kind, location)
    if problem["type"] == "missing":
        return f"{'.'.join(location)} is missing; write it"
    message = problem["msg"].removeprefix("Value error, ")
    depth = _depth_of_union(kind, location)
    if depth < len(location):
        # pydantic reports an error for each possible type, under the type's name.
        place = problem["loc"][:depth]
        attempts = [entry for entry in error.errors() if entry["loc"][:depth] == place]
        problem = min(attempts, key=lambda entry: len(entry["loc"]))
        kinds = dict.fromkeys(entry["msg"].removeprefix("Input should be ") for entry in attempts)
        location, message = location[:depth], f"Input should be {', or '.join(kinds)}"
    key = ".".join(location)
    message = message.replace("a valid tuple", "a list, such as [a,b]")
    if problem["type"] == "model_type" and (names := _fields_at(kind, location)):
        settings = ", ".join(f"{key}.{name}" for name in names)
        message = f"is a section of settings; {kind.hints.get(key) or f'known: {settings}'}"
    if not key:
        return message
    return f"{key} = {json.dumps(problem['input'], default=str)}: {message}"


def _depth_of_union(kind: type[Config], location: list[str]) -> int:
    """How many parts of a location lead to a setting of several types; all if there is none."""
    fields: Mapping[str, Any] = kind.model_fields
    for depth, name in enumerate(location, start=1):
        annotation = fields[name].annotation if name in fields else None
        is_union = get_origin(annotation) in (Union, UnionType)
        if is_union and len({*get_args(annotation)} - {type(None)}) > 1:
            return depth
        fields = _fields_of(fields.get(name))
    return len(location)


def _unknown(kind: type[Config], location: list[str]) -> str:
    """The message for an unknown key.

    It gives the first of these that exists: the hint for the key's last part; the sibling named by
    its initials (``lr``); a very similar sibling; settings of any section that are very similar;
    the most similar sibling.
    """
    key, last = ".".join(location), location[-1]
    if answer := kind.hints.get(last):
        return f"unknown key {key}; {answer}"
    siblings = [".".join([*location[:-1], name]) for name in _fields_at(kind, location[:-1])]
    initials = "".join(word[0] for word in last.split("_") if word)
    if len(initials) > 1 and (short := ".".join([*location[:-1], initials])) in siblings:
        return f"unknown key {key}; did you mean {short}?"
    for names in (siblings, _settings(kind.model_fields)):
        parts = [name.split(".")[-1] for name in names]
        similar = difflib.get_close_matches(last, parts, n=1, cutoff=0.7)
        similar = similar or difflib.get_close_matches(key, names, n=1, cutoff=0.8)
        if matches := [n for n in names if n in similar or n.split(".")[-1] in similar]:
            return f"unknown key {key}; did you mean {' or '.join(matches)}?"
    return f"unknown key {key}; {did_you_mean(key, siblings)}" if siblings else f"unknown key {key}"


def _settings(fields: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The dotted names of all settings of a configuration."""
    names = []
    for name, field in fields.items():
        section = _fields_of(field)
        names += _settings(section, f"{prefix}{name}.") if section else [f"{prefix}{name}"]
    return names


def _fields_at(kind: type[Config], location: list[str]) -> Mapping[str, Any]:
    """The fields of the section at a location; none if there is no section."""
    fields: Mapping[str, Any] = kind.model_fields
    for name in location:
        fields = _fields_of(fields.get(name))
    return fields


def _fields_of(field: Any) -> Mapping[str, Any]:
    return getattr(getattr(field, "annotation", None), "model_fields", {})
