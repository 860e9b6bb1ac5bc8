"""The worker itself: reads cells from its parent, learns them, tells how it goes.

Run as ``python -m holdfast.studies.workers.child N``, N being an open socket. Both ways a line
is one JSON object. Nothing heavy is imported above: from its first moment on, a worker must
notice that its parent has gone.
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

from holdfast.core.errors import HoldfastError
from holdfast.core.files import InUseError

if TYPE_CHECKING:
    from holdfast.learning.progress import Progress
    from holdfast.learning.trajectory import Trajectory

Tell = Callable[..., None]
_PATIENCE = 30.0  # seconds of waiting before the user is told
_LONGEST = 400  # characters of an error that is not ours


def main() -> None:
    """Learn what the parent sends until it hangs up, or until this process is no longer sound."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    Thread(target=_listen, args=(channel, orders), daemon=True).start()

    def tell(told: str, **values: Any) -> None:
        channel.sendall(json.dumps({"told": told, **values}).encode() + b"\n")

    import torch

    from holdfast.learning.trajectory import Trajectory  # noqa: F401 - paid before the first cell

    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    tell("ready", threads=torch.get_num_threads(), devices=devices)
    while True:
        outcome = attempt(orders.get(), tell)
        tell("finished", **outcome)
        if not outcome["sound"]:
            os._exit(0)  # the parent starts another when it needs one
        _release_memory()


def attempt(order: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Advance one cell; return where it stands, why it failed, and whether this process is sound.

    order: ``config``, ``horizon``, ``directory`` and ``folder``, that of relative paths. After
    an error that is not the caller's mistake (no memory left, a fault of the device) memory may
    be in pieces and the device unusable: the process is not sound.
    """
    from holdfast.learning.config import RunConfig
    from holdfast.learning.trajectory import Trajectory

    trajectory, error, sound = None, None, True
    with contextlib.suppress(OSError):  # another node may lack it; absolute paths do without
        os.chdir(order["folder"])
    try:
        trajectory = Trajectory(RunConfig.of(order["config"]), Path(order["directory"]))
        tell("opened", horizon=trajectory.horizon)
        _advance(trajectory, order["horizon"], tell)
    except HoldfastError as mistake:
        error = str(mistake)
    except Exception as fault:  # noqa: BLE001 - the parent hears of it, the other cells go on
        error, sound = _one_line(fault), False
    horizon = None if trajectory is None else trajectory.horizon
    return {"horizon": horizon, "error": error, "sound": sound}


def _advance(trajectory: Trajectory, horizon: int, tell: Tell) -> None:
    """Advance it, once nobody else does.

    A worker given up for lost may live a little longer, and another study of the same store may
    be learning this cell: then it is done, or goes on from there.
    """
    told_at = time.monotonic() + _PATIENCE
    while True:
        try:
            trajectory.advance(horizon, _progress(tell))
            return
        except InUseError as error:
            if time.monotonic() > told_at:
                tell("event", text=f"waits: {error}")
                told_at = float("inf")
            time.sleep(0.5)


def _listen(channel: socket.socket, orders: SimpleQueue[dict[str, Any]]) -> None:
    # A parent that was killed may leave half a line, or words of ours unread, which is a reset.
    with contextlib.suppress(OSError, ValueError), channel.makefile("rb") as lines:
        for line in lines:
            orders.put(json.loads(line))
    # The parent has hung up or died. What is committed is whole, so nothing has to be tidied,
    # and the main thread may be busy for hours.
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
    """A cell must neither inherit nor be charged for the memory of the one before."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()  # other workers may share the GPU
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
