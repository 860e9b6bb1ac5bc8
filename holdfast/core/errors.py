"""The exceptions for users' mistakes, their messages, and the hint for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class HoldfastError(Exception):
    """The caller's mistake, in one line: what is wrong, where, and what to do.

    The command line prints it without a traceback and exits with status 2. Our own mistakes
    are assertions and keep their traceback. code: the kind of mistake, for another process.
    """

    code: ClassVar[str] = "invalid_value"


class NoSpaceError(HoldfastError):
    """The disk has no room for what was to be written, or a quota is used up."""

    code = "no_space"


class UnwritableError(HoldfastError):
    """A place cannot be written, as on a file system that is read-only."""

    code = "unwritable"


class InUseError(HoldfastError):
    """Another process holds the directory."""

    code = "busy"


def error_of(code: str, text: str) -> HoldfastError:
    """The error that another process has reported; see :attr:`HoldfastError.code`."""
    kinds = {kind.code: kind for kind in (NoSpaceError, UnwritableError, InUseError)}
    return kinds.get(code, HoldfastError)(text)


def reason_of(error: BaseException, longest: int | None = None) -> str:
    """An error's message as one line of at most ``longest`` characters; None: any length."""
    return " ".join(str(error).split())[:longest]


def described(error: BaseException, longest: int | None = None) -> str:
    """An error's type and message as one line, for errors of libraries; see :func:`reason_of`."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:longest]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The known name most similar to ``name``, as a question; all names when none is similar."""
    names = list(names)
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(names)}"
