"""Processes that the server begins, which change the memory, and ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from holdfast.memory.detached import learning_environment, opened_log

# Seconds that a process gets to end by itself. The server has to end within two; the model's last
# step has half a second of them.
PATIENCE = 0.5


async def begin_logged(directory: Path, command: Sequence[str]) -> asyncio.subprocess.Process:
    """Begin a process whose output goes to the memory's log."""
    with opened_log(directory) as log:
        return await begin(command, log, log)


async def begin(
    command: Sequence[str], out: IO[bytes] | int, err: IO[bytes] | int
) -> asyncio.subprocess.Process:
    """Begin a process. out, err: as of :mod:`subprocess`."""
    return await asyncio.create_subprocess_exec(
        *command,
        env=learning_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,  # Ctrl-C reaches only the server, which ends it
    )


def terminate(process: asyncio.subprocess.Process | None) -> None:
    """Ask a process to end, if it runs."""
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()


async def stop(process: asyncio.subprocess.Process | None, seconds: float | None = None) -> None:
    """Ask a process to end and wait for it; the next one continues from its progress.

    seconds: after which it is killed, which loses nothing more; None: never.
    """
    terminate(process)
    if process is not None and process.returncode is None:
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
