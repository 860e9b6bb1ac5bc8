"""Processes that cost no import: they are forked from one that has imported everything."""

from __future__ import annotations

import multiprocessing
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import wait as wait_for
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any

CONTEXT = multiprocessing.get_context("forkserver")
# Importing these takes longer than most of what the tests let a process do.
CONTEXT.set_forkserver_preload(
    [
        "holdfast.cli.main",
        "holdfast.exports.export",
        "holdfast.learning.trajectory",
        "holdfast.memory.memory",
        "holdfast.serving.application",
        "peft",
        "transformers.models.llama.modeling_llama",
        "uvicorn",
    ]
)
# multiprocessing begins processes, and asks after them, in one thread at a time only.
_ONE_THREAD = threading.Lock()


class Forked:
    """``python -m holdfast arguments`` with the methods of :class:`subprocess.Popen`.

    stdin, stdout, stderr: open files, or None for nothing; an output that is "pipe" is read from
    the attribute of its name. environment: all of it; this process's if None. cwd: likewise.
    path: where it looks for modules first. channel: an open file descriptor to pass on; its number
    there takes the place of the last argument. file_bytes: no file may be larger. What a library
    reads when it is imported is that of the process it is forked from.
    """

    def __init__(
        self,
        arguments: Sequence[object],
        *,
        module: str = "holdfast",
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        path: Sequence[Path] = (),
        stdin: IO[Any] | None = None,
        stdout: IO[Any] | str | None = None,
        stderr: IO[Any] | str | None = None,
        channel: int | None = None,
        file_bytes: int | None = None,
    ) -> None:
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        with ExitStack() as opened:
            nothing = opened.enter_context(open(os.devnull, "r+b"))
            files: list[IO[Any]] = [stdin or nothing]
            for name, file in (("stdout", stdout), ("stderr", stderr)):
                if file == "pipe":
                    ours, theirs = os.pipe()
                    setattr(self, name, open(ours, encoding="utf-8"))  # noqa: SIM115
                    file = opened.enter_context(open(theirs, "wb"))
                assert not isinstance(file, str)
                files.append(file or nothing)
            self._process = CONTEXT.Process(
                target=_run,
                args=(
                    module,
                    [str(argument) for argument in arguments],
                    dict(os.environ if environment is None else environment),
                    str(cwd or Path.cwd()),
                    [str(folder) for folder in path],
                    [DupFd(file.fileno()) for file in files],
                    None if channel is None else DupFd(channel),
                    file_bytes,
                ),
                daemon=True,
            )
            with _ONE_THREAD:
                self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        with _ONE_THREAD:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        wait_for([self._process.sentinel], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("holdfast", timeout or 0)
        return status

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What is left to read of either output, little enough for a pipe; it has ended then."""
        outputs = []
        for pipe in (self.stdout, self.stderr):
            outputs.append("" if pipe is None else pipe.read())
            if pipe is not None:
                pipe.close()
        self.wait(timeout)
        return outputs[0], outputs[1]

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()


def forked(*arguments: object, **how: Any) -> tuple[int, str, str]:
    """A command to its end: its status, its standard output, its standard error."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        status = Forked(arguments, stdout=out, stderr=err, **how).wait(timeout=300)
        for file in (out, err):
            file.seek(0)
        return status, out.read(), err.read()


def _run(
    module: str,
    arguments: list[str],
    environment: dict[str, str],
    cwd: str,
    path: list[str],
    files: list[Any],
    channel: Any | None,
    file_bytes: int | None,
) -> None:
    if file_bytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, hard))
    for number, file in enumerate(files):
        os.dup2(file.detach(), number)
    if channel is not None:
        arguments[-1] = str(channel.detach())
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.path[:0] = path
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
