"""What every verb of the command line shares: errors end in one line and an exit status."""

from __future__ import annotations

import io
import os
import select
import sys
import traceback
from typing import Any, NoReturn, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast.core.errors import HoldfastError

BROKEN_PIPE = 141  # 128 + SIGPIPE, as shells report a process ended by that signal


class Verbs(TyperGroup):
    """The command group; accepts `--debug` anywhere on the command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = [argument for argument in args if argument != "--debug"]
        return super().parse_args(ctx, ["--debug", *rest] if len(rest) < len(args) else rest)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        # Replace what the terminal's encoding lacks by "?"; standard error does so by itself.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        return super().main(*args, **kwargs)


class Verb(TyperCommand):
    """A verb whose errors end in one line and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        debug: bool = ctx.find_root().params["debug"]
        try:
            value = super().invoke(ctx)
            print(end="", flush=True)  # so that errors of the output stream surface here
            return value
        except (typer.Exit, typer.Abort):
            raise
        except HoldfastError as error:
            _fail(str(error), 2, debug)
        except KeyboardInterrupt:
            _fail("interrupted; the same command continues", 130, debug)
        except Exception as error:  # noqa: BLE001 - the last resort, reported as our fault
            if isinstance(error, BrokenPipeError) and _reader_left():
                raise typer.Exit(BROKEN_PIPE) from None
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            _fail(f"this is our fault: {reason} (--debug shows the traceback)", 1, debug)


def _reader_left() -> bool:
    """Whether the reader of our output has left, as with ``| head``; redirect to null if so."""
    unread = [stream for stream in (sys.stdout, sys.stderr) if _is_unread(stream)]
    for stream in unread:
        # Python flushes again at exit, which would print an error.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    return bool(unread)


def _is_unread(stream: TextIO) -> bool:
    try:
        stream.flush()
        watch = select.poll()  # a stream without a buffer has nothing left to flush
        watch.register(stream, 0)  # POLLERR is always reported
        return bool(watch.poll(0))
    except BrokenPipeError:
        return True
    except (OSError, ValueError, AttributeError):  # not a file, or no poll on this system
        return False


def _fail(line: str, status: int, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    print(f"holdfast: {line}", file=sys.stderr)
    raise typer.Exit(status)
