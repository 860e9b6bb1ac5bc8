"""Sections of a configuration that had another name: read as what they are called now.

What a user wrote is read with one line that tells the present name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.core.processes import is_rank_zero

V = TypeVar("V")

FORMER = {"data": "replay", "function": "sd", "o_lora": "olora", "sequential_osrm": "osrm"}


def given_settings(values: Mapping[str, V]) -> dict[str, V]:
    """A user's values under the present names; their keys are sections or dotted settings.

    Tells each former name once, on standard error. Raises HoldfastError when a section is there
    under both names.
    """
    sections = {_section(key) for key in values}
    for former, now in FORMER.items():
        if former in sections:
            if now in sections:
                raise HoldfastError(
                    f"{former} and {now} name the same section of the configuration; write all "
                    f"its settings under {now}"
                )
            _tell(former, now)
    return {_renamed(key): value for key, value in values.items()}


def given_overrides(overrides: Iterable[str]) -> list[str]:
    """A user's ``KEY=VALUE`` lines under the present names.

    Tells and raises as :func:`given_settings`.
    """
    lines = list(overrides)
    given_settings({line.partition("=")[0]: line for line in lines if "=" in line})
    return [_renamed(line) if "=" in line else line for line in lines]


def _section(key: Any) -> Any:
    return re.split(r"[.=]", key, maxsplit=1)[0] if isinstance(key, str) else key


def _renamed(key: Any) -> Any:
    section = _section(key)
    return FORMER[section] + key[len(section) :] if section in FORMER else key


@cache
def _tell(former: str, now: str) -> None:
    if is_rank_zero():
        sys.stderr.write(f"holdfast: the section {former} is called {now} now; write {now}\n")
