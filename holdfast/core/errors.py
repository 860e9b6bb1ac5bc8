"""The exception for users' mistakes, and the hint for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HoldfastError(Exception):
    """The caller's mistake, in one line: what is wrong, where, and what to do.

    The command line prints it without a traceback and exits with status 2. Our own mistakes
    are assertions and keep their traceback.
    """


class NoSpaceError(HoldfastError):
    """The disk has no room for what was to be written, or a quota is used up."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name most similar to ``name``, as a question; all names when none is similar."""
    known = list(known)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(known)}"
