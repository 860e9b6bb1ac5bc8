"""The `holdfast` command. Each verb has a file; none imports torch before it runs."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from holdfast.cli.demo import demo
from holdfast.cli.doctor import doctor
from holdfast.cli.recipes import recipes
from holdfast.cli.run import run
from holdfast.core.errors import HoldfastError

verbs = typer.Typer(
    help="Teach a language model new facts, task after task; measure and slow its forgetting.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
verbs.command()(run)
verbs.command()(recipes)
verbs.command()(doctor)
verbs.command()(demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        from holdfast import __version__

        print(f"holdfast {__version__}")
        raise typer.Exit


@verbs.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of every verb are read in `app`, which must know them before the verb fails."""


def app() -> None:
    """Run a verb. Exit status: 0 done, 2 the user can fix it, 1 our fault, 130 interrupted."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        verbs(arguments)
    except HoldfastError as error:
        _fail(f"holdfast: {error}", 2, debug)
    except KeyboardInterrupt:
        _fail("holdfast: interrupted; the same command continues from the last task", 130, debug)
    except Exception as error:  # noqa: BLE001 - the last resort, reported as our fault
        reason = " ".join(str(error).split())
        _fail(
            f"holdfast: this is our fault: {type(error).__name__}: {reason} "
            "(--debug shows the traceback)",
            1,
            debug,
        )


def _fail(line: str, status: int, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    print(line, file=sys.stderr)
    raise SystemExit(status)
