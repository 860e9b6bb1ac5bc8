"""The `holdfast` command. Each verb has a file; none imports torch before it runs.

Exit status: 0 done, 2 the user can fix it, 1 our fault, 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast.cli.demo import demo
from holdfast.cli.doctor import doctor
from holdfast.cli.recipes import recipes
from holdfast.cli.run import run
from holdfast.core.errors import HoldfastError


class _Verbs(TyperGroup):
    """The command as a whole: `--debug` counts wherever it stands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = [argument for argument in args if argument != "--debug"]
        return super().parse_args(ctx, ["--debug", *rest] if len(rest) < len(args) else rest)


class _Verb(TyperCommand):
    """A verb whose errors end in one line and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        debug: bool = ctx.find_root().params["debug"]
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except HoldfastError as error:
            _fail(str(error), 2, debug)
        except KeyboardInterrupt:
            _fail("interrupted; the same command continues from the last task", 130, debug)
        except Exception as error:  # noqa: BLE001 - the last resort, reported as our fault
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            _fail(f"this is our fault: {reason} (--debug shows the traceback)", 1, debug)


app = typer.Typer(
    cls=_Verbs,
    help="Teach a language model new facts, task after task; measure and slow its forgetting.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _verb in (run, recipes, doctor, demo):
    app.command(cls=_Verb)(_verb)


def _show_version(wanted: bool) -> None:
    if wanted:
        from holdfast import __version__

        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; any verb takes it.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of the command as a whole."""


def _fail(line: str, status: int, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    print(f"holdfast: {line}", file=sys.stderr)
    raise typer.Exit(status)
