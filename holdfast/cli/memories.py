"""What the verbs on memories share: progress bars, and a memory whose model is here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.memory.memory import Memory


class WorkBars:
    """A progress bar on standard error for each piece of work that is reported."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._what: str | None = None
        self._draw: Callable[[int, int, str], None] = lambda *_: None

    def __enter__(self) -> WorkBars:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the bar that is shown; the next report begins one."""
        self._open.close()
        self._what = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` of the work ``what`` are done."""
        from holdfast.cli.progress import counting

        if what != self._what:
            self.close()
            self._what = what
            self._draw = self._open.enter_context(counting(what))
        self._draw(done, total, "")


def opened_memory(directory: Path, model: str = "smollm2") -> Memory:
    """The memory, its model fetched with a progress bar if it is not in the cache."""
    from holdfast.cli.fetch import fetch_bars
    from holdfast.memory.memory import Memory
    from holdfast.model.fetch import fetch

    memory = Memory(directory, model)
    with fetch_bars() as report:
        fetch(memory.model, report)
    return memory
