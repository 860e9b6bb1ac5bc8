"""The functions by which long work tells how far it is: how much is done, and of how much."""

from __future__ import annotations

from collections.abc import Callable

CountReport = Callable[[int, int], None]  # report(done, total)
NoteReport = Callable[[int, int, str], None]  # report(done, total, note)
WorkReport = Callable[[str, int, int], None]  # report(what, done, total)


def silent(*_: object) -> None:
    """A report to nobody, of any of these kinds."""
