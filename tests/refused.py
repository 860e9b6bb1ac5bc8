"""The one line with which a call is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError


def line_of(call: Callable[..., object], *arguments: Any, **keywords: Any) -> str:
    """The message of the HoldfastError that the call raises, which has no other line."""
    with pytest.raises(HoldfastError) as raised:
        call(*arguments, **keywords)
    line = str(raised.value)
    assert len(line.splitlines()) == 1
    return line
