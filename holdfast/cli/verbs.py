"""What every verb of the command line shares: errors end in one line and an exit status."""

from __future__ import annotations

import sys
import traceback
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast.core.errors import HoldfastError


class Verbs(TyperGroup):
    """The command as a whole: `--debug` counts wherever it stands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = [argument for argument in args if argument != "--debug"]
        return super().parse_args(ctx, ["--debug", *rest] if len(rest) < len(args) else rest)


class Verb(TyperCommand):
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
            _fail("interrupted; the same command continues", 130, debug)
        except Exception as error:  # noqa: BLE001 - the last resort, reported as our fault
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            _fail(f"this is our fault: {reason} (--debug shows the traceback)", 1, debug)


def _fail(line: str, status: int, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    print(f"holdfast: {line}", file=sys.stderr)
    raise typer.Exit(status)
