"""What all verbs share: an error or a signal ends a verb with one line and an exit status."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast.cli.printing import cannot_show, escaped, safe_output
from holdfast.core import processes
from holdfast.core.errors import HoldfastError, described

MemoryPath = Annotated[Path, typer.Argument(metavar="MEMORY", help="Its directory.")]
Everyday = Annotated[
    Path | None, typer.Option(help="JSON lines {question, answers}; 240 come along.")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted settings.")
]

_UsageError: Any = typer.BadParameter.__base__  # click's UsageError, or that of typer's copy
# Arguments after it are texts, even if they begin with -; the context's meta has their number.
TEXTS = "--"
_AGAIN_AFTER = 0.01  # seconds until a lost signal is raised again


@contextmanager
def _usage_in_one_line() -> Iterator[None]:
    """Turn a usage error in the block into one line on standard error and exit status 2."""
    try:
        yield
    except _UsageError as error:
        if error.ctx is None or type(error).__name__ == "NoArgsIsHelpError":
            raise
        verb = error.ctx.command_path
        message = error.format_message().replace("Value error, ", "")
        line = escaped(" ".join(message.split())).rstrip(".")
        print(f"{verb}: {line} ({verb} --help explains)", file=sys.stderr)
        raise typer.Exit(2) from None


class VerbGroup(TyperGroup):
    """A group of verbs whose usage errors are one line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _usage_in_one_line():
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with _usage_in_one_line():
            return super().resolve_command(ctx, args)


class Verbs(VerbGroup):
    """The root command group, which accepts `--debug` anywhere before ``--``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index(TEXTS) if TEXTS in args else len(args)
        others = [argument for argument in args[:end] if argument != "--debug"] + args[end:]
        return super().parse_args(ctx, ["--debug", *others] if len(others) < len(args) else others)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        # Standard output refuses what it cannot encode; Python escapes it on standard error.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="strict")
        try:
            return as_one_run(partial(super().main, *args, **kwargs))
        except UnicodeEncodeError as error:  # in a help page
            print(f"holdfast: {cannot_show(error)}", file=sys.stderr)
            raise SystemExit(2) from None


class Verb(TyperCommand):
    """A verb whose errors end in one line and an exit status."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[TEXTS] = len(args) - args.index(TEXTS) - 1 if TEXTS in args else 0
        with _usage_in_one_line():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        debug: bool = ctx.find_root().params["debug"]
        with safe_output():
            try:
                with stopped_by_signals():
                    self._check_alone()
                    value = super().invoke(ctx)
                print(end="", flush=True)  # so that errors of the output stream surface here
                return value
            except (typer.Exit, typer.Abort):
                raise
            except HoldfastError as error:
                _fail(str(error), 2, debug)
            except KeyboardInterrupt as stop:
                terminated = isinstance(stop, Terminated)
                word, status = ("stopped", 143) if terminated else ("interrupted", 130)
                notes = "".join(f"; {note}" for note in getattr(stop, "__notes__", ()))
                _fail(f"{word}{notes}; the same command continues", status, debug)
            except Exception as error:
                streams = (sys.stdout, sys.stderr)
                if isinstance(error, BrokenPipeError) and any(map(_is_unread, streams)):
                    raise  # typer exits silently: the reader closed our output, as `| head` does
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    _fail(f"the output cannot be written ({error.strerror})", 2, debug)
                from holdfast.core.plugins import plug_in_of

                plug_in = plug_in_of(error)
                blamed = f"the fault of the plug-in {plug_in}" if plug_in else "our fault"
                line = f"this is {blamed}: {described(error)} (--debug shows the traceback)"
                _fail(line, 1, debug)

    def _check_alone(self) -> None:
        if processes.world_size() > 1 and self.name != "run":
            raise HoldfastError(
                f"{self.name} is work for one process, and {processes.world_size()} were started; "
                "start it without the launcher (`holdfast run` is what several processes share)"
            )


def _is_unread(stream: TextIO) -> bool:
    try:
        stream.flush()
        watch = select.poll()  # flushing an empty buffer proves nothing
        watch.register(stream, 0)  # POLLERR is always reported
        return bool(watch.poll(0))
    except BrokenPipeError:
        return True
    except (OSError, ValueError, AttributeError):  # not a file, or no poll on this system
        return False


def _fail(line: str, status: int, debug: bool) -> NoReturn:
    if processes.claims_error_report():
        stream = sys.stderr if processes.is_rank_zero() else sys.__stderr__
        if debug:
            traceback.print_exc(file=stream)
        print(f"holdfast: {escaped(line)}", file=stream)
    raise typer.Exit(status)


def as_one_run(command: Callable[[], Any]) -> Any:
    """Run a command, which ends with SystemExit; of a launcher's processes only the first prints.

    The launcher stops all of them as soon as one has failed, so that ends only after the error has
    been printed.
    """
    if processes.launched() == 1:
        return command()
    try:
        with processes.joined(), ExitStack() as silenced:
            if not processes.is_rank_zero():
                nowhere = silenced.enter_context(open(os.devnull, "w"))
                silenced.enter_context(redirect_stdout(nowhere))
                silenced.enter_context(redirect_stderr(nowhere))
            # Verbs set their own handler and restore this one: the launcher may send SIGTERM, since
            # another process has failed, while this one prints its error.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            try:
                return command()
            except SystemExit as end:
                if not end.code:
                    return None
                processes.claims_error_report()
                sys.stdout.flush()
                sys.stderr.flush()
                # In the interpreter's own exit, torch's connections wait for processes that ended.
                os._exit(end.code if isinstance(end.code, int) else 1)
    except HoldfastError as error:  # the processes did not meet
        print(f"holdfast: {error}", file=sys.stderr)
        raise SystemExit(2) from None


class Terminated(KeyboardInterrupt):
    """Raised by SIGTERM."""


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """During the block SIGINT raises KeyboardInterrupt, and SIGTERM :class:`Terminated`.

    What a signal raises in a finalizer or a callback of the garbage collector reaches nobody:
    Python passes it to ``sys.unraisablehook`` and goes on. The hook set here raises it again after
    that code. Only the main thread receives signals; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    dropped: list[type[BaseException]] = []

    def interrupted(_signal: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    def terminated(_signal: int, _frame: object) -> NoReturn:
        raise Terminated

    def again(_signal: int, frame: FrameType | None) -> None:
        if not any(caller.f_code is hear.__code__ for caller, _ in traceback.walk_stack(frame)):
            raise dropped[-1]
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_AFTER)  # raised in the hook, it would be lost

    def hear(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            dropped.append(unraisable.exc_type)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_AFTER)
        else:
            hook(unraisable)

    hook = sys.unraisablehook
    handlers = {signal.SIGTERM: terminated, signal.SIGALRM: again}
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in background jobs of scripts
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
