"""The worker process: receives cells from its parent, advances them, reports progress.

Run as ``python -m holdfast.studies.workers.child N``, N being the file descriptor of an open
socket. In both directions a line is one JSON object. Heavy modules are imported later, so that a
worker can notice from its start that its parent has gone.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError, InUseError
from holdfast.core.own import require_directory

if TYPE_CHECKING:
    from holdfast.learning.progress import Progress
    from holdfast.learning.trajectory import Trajectory

Tell = Callable[..., None]
_PATIENCE = 30.0  # seconds of waiting for a lock before it is reported
_LONGEST = 400  # characters kept of an error that is not a HoldfastError


def main() -> None:
    """Advance the cells that the parent sends until it hangs up or this process is not sound."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    Thread(target=_listen, args=(channel, orders), daemon=True).start()

    def tell(told: str, **values: Any) -> None:
        channel.sendall(json.dumps({"told": told, **values}).encode() + b"\n")

    import torch

    from holdfast.learning.trajectory import Trajectory  # noqa: F401 - import before the first cell

    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    tell("ready", threads=torch.get_num_threads(), devices=devices)
    while True:
        outcome = attempt(orders.get(), tell)
        tell("finished", **outcome)
        if not outcome["sound"]:
            os._exit(0)  # the parent starts a new worker when it needs one
        _release_memory()


def attempt(order: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Advance one cell; return its horizon, its error, and whether this process is sound.

    order: ``config``, ``horizon``, ``directory``, ``folder``, which relative paths start from, and
    ``track``, with the ``tracker``, a ``name`` and a ``group``, or None.
    After an error that is not the caller's mistake (out of memory, a device fault) memory may be
    fragmented and the device unusable: the process is not sound.
    """
    from holdfast.learning.config import RunConfig
    from holdfast.learning.trajectory import Trajectory

    trajectory, error, sound = None, None, True
    with contextlib.suppress(OSError):  # another node may lack it; absolute paths do not need it
        os.chdir(order["folder"])
    try:
        directory = Path(order["directory"])
        require_directory(directory.parent)
        trajectory = Trajectory(RunConfig.of(order["config"]), directory)
        tell("opened", horizon=trajectory.horizon)
        _advance(trajectory, order, tell)
    except HoldfastError as mistake:
        error = str(mistake)
    except Exception as fault:  # noqa: BLE001 - reported to the parent; the other cells go on
        error, sound = _one_line(fault), False
    horizon = None if trajectory is None else trajectory.horizon
    return {"horizon": horizon, "error": error, "sound": sound}


def _advance(trajectory: Trajectory, order: dict[str, Any], tell: Tell) -> None:
    """Advance the trajectory as soon as no other process holds its directory.

    A worker counted as lost may still run for a while, and another study with the same store may
    be learning this cell. Its committed tasks are not learned again.
    """
    from holdfast.tracking.tracking import tracked

    track = order["track"] or {"tracker": None}
    told_at = time.monotonic() + _PATIENCE
    while True:
        place, begin = trajectory.directory, trajectory.horizon
        try:
            with tracked(
                config=trajectory.config,
                directory=place,
                horizon=begin,
                shown=_progress(tell),
                **track,
            ) as progress:
                trajectory.advance(order["horizon"], progress)
            return
        except InUseError as error:
            if time.monotonic() > told_at:
                tell("event", text=f"waits: {error}")
                told_at = float("inf")
            time.sleep(0.5)


def _listen(channel: socket.socket, orders: SimpleQueue[dict[str, Any]]) -> None:
    # A killed parent may leave an incomplete line, or reset the connection over unread messages.
    with contextlib.suppress(OSError, ValueError), channel.makefile("rb") as lines:
        for line in lines:
            orders.put(json.loads(line))
    # The parent has hung up or died. Commits are atomic, so there is nothing to clean up; exit now,
    # because the main thread may be busy for hours.
    os._exit(0)


def _progress(tell: Tell) -> Progress:
    from holdfast.learning.progress import Progress
    from holdfast.results import RecallMatrix

    class Told(Progress):
        def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
            tell("task", task=task)

        def event(self, text: str) -> None:
            tell("event", text=text)

    return Told()


def _one_line(error: Exception) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:_LONGEST].removesuffix(": ")


def _release_memory() -> None:
    """Free the previous cell's memory, and reset the peak, so that the next cell starts clean."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()  # other workers may share the GPU
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
