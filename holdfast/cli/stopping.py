"""SIGINT and SIGTERM end a verb, also where Python drops the exception that they raise."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

_AGAIN_AFTER = 0.01  # seconds


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends a verb as Ctrl-C does, with its own words and status."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Within the block SIGINT raises KeyboardInterrupt and SIGTERM :class:`Terminated`.

    A signal that arrives while a finalizer or a callback of the garbage collector runs raises
    where nobody can catch it: Python tells ``sys.unraisablehook`` and goes on. Here it is raised
    again as soon as that code has ended. Only the main thread hears signals; in another one the
    block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    dropped: list[type[BaseException]] = []

    def interrupted(_signal: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    def terminated(_signal: int, _frame: object) -> NoReturn:
        raise Terminated

    def again(_signal: int, _frame: object) -> NoReturn:
        raise dropped[-1]

    def hear(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            dropped.append(unraisable.exc_type)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_AFTER)
        else:
            hook(unraisable)

    hook = sys.unraisablehook
    handlers = {signal.SIGTERM: terminated, signal.SIGALRM: again}
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as under nohup
        handlers[signal.SIGINT] = interrupted
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    sys.unraisablehook = hear
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
