"""The processes that learn for a server: what ended them, and ending them."""

from __future__ import annotations

import asyncio
import contextlib
import signal


def killed_by(status: int) -> str:
    """What is said of a process that a signal has killed. status: its exit status, negative."""
    with contextlib.suppress(ValueError):
        name = signal.Signals(-status).name
        return f"was killed by {name}; is there too little memory?"
    return f"was killed by signal {-status}"


def terminate(process: asyncio.subprocess.Process | None) -> None:
    """Ask a process to end, if it runs."""
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()


async def stop(process: asyncio.subprocess.Process | None, seconds: float | None = None) -> None:
    """Stop a lesson that is in progress; the next one, or `holdfast learn`, finishes it.

    seconds: after which it is killed, which loses no more; None to wait for it.
    """
    terminate(process)
    if process is not None and process.returncode is None:
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
