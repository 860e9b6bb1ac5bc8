"""What every verb of the command line shares: errors end in one line and an exit status."""

from __future__ import annotations

import io
import select
import sys
import traceback
from functools import partial
from typing import Any, NoReturn, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast.cli.launched import as_one_run
from holdfast.cli.printing import cannot_show, escaped, safe_output
from holdfast.cli.stopping import Terminated, stopped_by_signals
from holdfast.core import processes
from holdfast.core.errors import HoldfastError, error_line

# The verbs whose work several processes share.
_SHARED = frozenset({"run"})


_TEXTS = "--"  # all behind it is text, whatever its form


def texts_in(ctx: typer.Context) -> int:
    """How many arguments of a verb stand behind ``--``."""
    count: int = ctx.meta[_TEXTS]
    return count


class Verbs(TyperGroup):
    """The command group; accepts `--debug` anywhere on the command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index(_TEXTS) if _TEXTS in args else len(args)
        rest = [argument for argument in args[:end] if argument != "--debug"] + args[end:]
        return super().parse_args(ctx, ["--debug", *rest] if len(rest) < len(args) else rest)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        # What standard output cannot show is refused; standard error escapes it by itself.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="strict")
        try:
            return as_one_run(partial(super().main, *args, **kwargs))
        except UnicodeEncodeError as error:  # of a help page
            print(f"holdfast: {cannot_show(error)}", file=sys.stderr)
            raise SystemExit(2) from None


class Verb(TyperCommand):
    """A verb whose errors end in one line and an exit status."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_TEXTS] = len(args) - args.index(_TEXTS) - 1 if _TEXTS in args else 0
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with safe_output():
            return self._invoke(ctx)

    def _invoke(self, ctx: Any) -> Any:
        debug: bool = ctx.find_root().params["debug"]
        try:
            with stopped_by_signals():
                self._check_alone()
                value = super().invoke(ctx)
            print(end="", flush=True)  # so that errors of the output stream surface here
            return value
        except (typer.Exit, typer.Abort):
            raise
        except HoldfastError as error:
            _fail(error, str(error), 2, debug)
        except KeyboardInterrupt as stop:
            said, status = (
                ("stopped", 143) if isinstance(stop, Terminated) else ("interrupted", 130)
            )
            kept = "".join(f"; {note}" for note in getattr(stop, "__notes__", ()))
            _fail(stop, f"{said}{kept}; the same command continues", status, debug)
        except Exception as error:
            if isinstance(error, BrokenPipeError) and any(
                map(_is_unread, (sys.stdout, sys.stderr))
            ):
                raise  # typer exits silently: the reader closed our output, as `| head` does
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            fault = _plug_in_of(error)
            blamed = f"the fault of the plug-in {fault}" if fault else "our fault"
            _fail(error, f"this is {blamed}: {reason} (--debug shows the traceback)", 1, debug)

    def _check_alone(self) -> None:
        if processes.world_size() > 1 and self.name not in _SHARED:
            raise HoldfastError(
                f"{self.name} is work for one process, and {processes.world_size()} were started; "
                "start it without the launcher (`holdfast run` is what several processes share)"
            )


def _plug_in_of(error: Exception) -> str | None:
    """The installed plug-in whose code raised an error: package, file, line."""
    from holdfast.core import plugins

    groups = (plugins.ANCHORS, plugins.ALLOCATIONS, plugins.STREAMS)
    entries = (entry for group in groups for entry in plugins.installed(group))
    installed = {entry.module.partition(".")[0] for entry in entries}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in installed - {"holdfast"}:
            return f"{package} ({frame.f_code.co_filename} line {line})"
    return None


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


def _fail(error: BaseException, line: str, status: int, debug: bool) -> NoReturn:
    if processes.to_say():
        shown = sys.stderr if processes.is_rank_zero() else sys.__stderr__
        if debug:
            traceback.print_exc(file=shown)
        print(error_line(error, escaped(line)), file=shown)
    raise typer.Exit(status)
