"""A signal ends a verb wherever it arrives."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from holdfast.cli.stopping import Terminated, stopped_by_signals

SIGNALS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


def in_a_finalizer(send: Callable[[], None]) -> None:
    class Closed:
        def __del__(self) -> None:
            send()

    Closed()


def in_a_collection(send: Callable[[], None]) -> None:
    def collected(phase: str, _info: object) -> None:
        if phase == "start":
            send()

    gc.callbacks.append(collected)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(collected)


@pytest.mark.parametrize("place", [in_a_finalizer, in_a_collection, lambda send: send()])
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_block(
    number: signal.Signals, place: Callable[[Callable[[], None]], None]
) -> None:
    before = {one: signal.getsignal(one) for one in (*SIGNALS, signal.SIGALRM)}
    begun = time.monotonic()

    def work() -> None:
        place(lambda: os.kill(os.getpid(), number))
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt) as raised, stopped_by_signals():
        work()
    assert raised.type is SIGNALS[number]
    assert time.monotonic() - begun < 5
    assert {one: signal.getsignal(one) for one in before} == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_errors_that_nobody_catches_are_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ValueError

    told: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))
    with stopped_by_signals():
        in_a_finalizer(broken)
    assert told == [ValueError]
