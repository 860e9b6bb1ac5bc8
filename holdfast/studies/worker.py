"""The worker process, which advances one cell after another, and its parent's handle of it.

Run as ``python -m holdfast.studies.worker N``, N being the file descriptor of a connection to the
parent. Orders and messages are JSON (see :mod:`holdfast.studies.executor`). Heavy modules are
imported later, so that a worker can notice from its start that its parent has gone.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO

from holdfast.core.errors import HoldfastError, InUseError, described
from holdfast.core.file_checks import require_directory
from holdfast.core.plugins import plug_in_of
from holdfast.core.processes import importable, manner
from holdfast.learning.progress import Progress
from holdfast.results import RecallMatrix

Tell = Callable[..., None]
MODULE = "holdfast.studies.worker"
LOOK = 1.0  # seconds between checks of workers that send nothing
_GRACE = 5.0  # seconds that a worker which hung up has until it is killed
_PATIENCE = 30.0  # seconds of waiting for a lock before it is reported
_LAST_WORDS = 300  # characters kept of a worker's output
_LONGEST = 400  # characters kept of an error that is not a HoldfastError


class WorkerProcess:
    """A started worker; it lives until :meth:`end`, or until this process dies.

    environment: variables on top of this process's own; heard: whether it has sent a message;
    sound: whether it can take another cell; otherwise it has ended.
    Its output goes to a temporary file, because the terminal may show a live table.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.heard, self.sound = False, True
        # Opened to append, so that it can be truncated while the worker writes.
        self._output = tempfile.TemporaryFile("ab+")  # noqa: SIM115 - closed by `end`
        self.channel, theirs = Pipe()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", MODULE, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C reaches only the parent, which ends the worker
                    env={**os.environ, "PYTHONPATH": importable(), **environment},
                )
            except OSError as error:
                raise HoldfastError(
                    f"no worker can be started ({error.strerror}); ask for fewer workers"
                ) from error

    def send(self, order: Mapping[str, Any]) -> None:
        """Send a cell to the worker. A worker that has died is noticed by :meth:`hear`."""
        with contextlib.suppress(OSError):
            self.channel.send_bytes(json.dumps(order).encode())

    def hear(self) -> list[dict[str, Any]]:
        """The messages received since the last call; does not wait."""
        # Checked before the messages are read, so that no final one is missed.
        gone = self._process.poll() is not None
        messages: list[dict[str, Any]] = []
        try:
            while self.channel.poll():
                messages.append(json.loads(self.channel.recv_bytes()))
                self.heard = True
        except (EOFError, OSError):
            gone = True
        if messages and messages[-1]["kind"] == "finished":
            self.sound = messages[-1]["sound"]
            if self.sound:
                os.ftruncate(self._output.fileno(), 0)  # the last words are of the latest cell
            else:
                self.end()
        elif gone:
            self.sound = False
            messages.append(self.end(within=_GRACE))
        return messages

    def end(self, within: float = 0.0) -> dict[str, Any]:
        """Close the connection, kill the worker if it lives longer; return the message ``lost``."""
        self.channel.close()
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        with self._output as file:
            words = last_words(file)
        return {"kind": "lost", "how": manner(code), "words": words}


def last_words(file: BinaryIO) -> str:
    """The end of a process's output, in one line."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 4 * _LAST_WORDS))  # a character has at most four bytes
    return " ".join(file.read().decode(errors="replace").split())[-_LAST_WORDS:]


def main() -> None:
    """Advance the cells that the parent sends until it hangs up or this process is not sound."""
    channel = Connection(int(sys.argv[1]))
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    Thread(target=_listen, args=(channel, orders), daemon=True).start()

    def tell(kind: str, **values: Any) -> None:
        channel.send_bytes(json.dumps({"kind": kind, **values}).encode())

    import torch

    from holdfast.learning.trajectory import Trajectory  # noqa: F401 - import before the first cell

    while True:
        error, sound = attempt(orders.get(), tell)
        tell("finished", error=error, sound=sound)
        if not sound:
            os._exit(0)  # the parent starts a new worker when it needs one
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # other workers may share the GPU
            torch.cuda.reset_peak_memory_stats()  # of each cell


def _listen(channel: Connection, orders: SimpleQueue[dict[str, Any]]) -> None:
    # A killed parent may leave half an order, or reset the connection over unread messages.
    with contextlib.suppress(EOFError, OSError):
        while True:
            orders.put(json.loads(channel.recv_bytes()))
    # The parent has hung up or died. Commits are atomic, so there is nothing to clean up; exit now,
    # because the main thread may be busy for hours.
    os._exit(0)


class _Messenger(Progress):
    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        self._tell("task", task=task)

    def event(self, text: str) -> None:
        self._tell("event", text=text)


def attempt(order: Mapping[str, Any], tell: Tell) -> tuple[str | None, bool]:
    """Advance one cell; return its error, and whether this process is sound.

    order: of :meth:`~holdfast.studies.executor.Job.order`.
    After an error that is not the caller's mistake (out of memory, a device fault) memory may be
    fragmented and the device unusable: the process is not sound.
    """
    tell("begins")
    with contextlib.suppress(OSError):  # another node may lack it; absolute paths do not need it
        os.chdir(order["folder"])
    try:
        _advance(order, tell)
    except HoldfastError as mistake:
        return str(mistake), True
    except Exception as fault:  # noqa: BLE001 - reported to the parent; the other cells go on
        words = described(fault, _LONGEST).removesuffix(":")
        plug_in = plug_in_of(fault)
        blamed = f"the fault of the plug-in {plug_in}: " if plug_in else ""
        return f"{blamed}{words}", False
    return None, True


def _advance(order: Mapping[str, Any], tell: Tell) -> None:
    """Advance the trajectory as soon as no other process holds its directory.

    A worker counted as lost may still run for a while, and another study with the same store may
    be learning this cell. Its committed tasks are not learned again.
    """
    from holdfast.learning.config import RunConfig
    from holdfast.learning.trajectory import Trajectory
    from holdfast.tracking.tracking import tracked

    directory = Path(order["directory"])
    require_directory(directory.parent)
    trajectory = Trajectory(RunConfig.of(order["config"]), directory)
    tell("opened", horizon=trajectory.horizon)
    report_at = time.monotonic() + _PATIENCE
    progress = _Messenger(tell)
    while True:
        try:
            with tracked(
                config=trajectory.config,
                directory=trajectory.directory,
                horizon=trajectory.horizon,
                progress=progress,
                **order["track"],
            ) as listener:
                trajectory.advance(order["horizon"], listener)
            return
        except InUseError as error:
            if time.monotonic() > report_at:
                tell("event", text=f"waits: {error}")
                report_at = float("inf")
            time.sleep(0.5)


if __name__ == "__main__":
    main()
