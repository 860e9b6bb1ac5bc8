"""The `holdfast` command. A verb that needs torch imports it when it runs.

Exit status: 0 done; 1 internal error, failed check or closed output; 2 user error; 3 not taught
(`ask --taught-only`); 130 interrupted; 143 stopped by SIGTERM.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

# OpenMP's threads spin while they wait. Beside other programs, that keeps the thread they wait for
# from running, so they sleep early: GNU's after GOMP_SPINCOUNT spins, LLVM's and Intel's after
# KMP_BLOCKTIME milliseconds (with ACTIVE alone, never). ACTIVE lets GNU's spin longer than by
# default if two threads of a process compute, as in a server. All are read when torch loads.
if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"} & set(os.environ):
    os.environ |= {"GOMP_SPINCOUNT": "2000", "OMP_WAIT_POLICY": "ACTIVE", "KMP_BLOCKTIME": "1"}

try:
    import typer

    from holdfast.cli.analyse import analyse, report
    from holdfast.cli.ask import ask
    from holdfast.cli.capability import capability
    from holdfast.cli.demo import demo
    from holdfast.cli.diff import diff
    from holdfast.cli.doctor import check_plugin, doctor
    from holdfast.cli.evaluate import evaluate, evaluate_edits
    from holdfast.cli.export import export
    from holdfast.cli.fetch import fetch
    from holdfast.cli.forget import forget
    from holdfast.cli.learn import learn
    from holdfast.cli.lessons import consolidate, lessons
    from holdfast.cli.one_run import items, shares
    from holdfast.cli.run import recipes, run
    from holdfast.cli.serve import mcp, serve
    from holdfast.cli.sharing import merge, pull, push
    from holdfast.cli.stream import convert, inspect, symbol_qa
    from holdfast.cli.study import search, suite
    from holdfast.cli.verbs import Verb, VerbGroup, Verbs
except KeyboardInterrupt:  # before any verb runs
    sys.stderr.write("holdfast: interrupted; the same command continues\n")
    raise SystemExit(130) from None

app = typer.Typer(
    cls=Verbs,
    help="Teach a language model new facts, task after task; measure and slow its forgetting.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
stream = typer.Typer(
    name="stream",
    cls=VerbGroup,
    help="Make a stream of tasks, convert one, look at one.",
    no_args_is_help=True,
)
for _verb in (
    *(run, learn, lessons, forget, diff, merge, push, pull, consolidate, ask, serve, mcp),
    *(suite, search, analyse, report, items, shares),
    *(capability, evaluate, evaluate_edits, export, fetch, recipes, check_plugin, doctor, demo),
):
    app.command(cls=Verb)(_verb)
for _stream_verb in (symbol_qa, convert, inspect):
    stream.command(cls=Verb)(_stream_verb)
app.add_typer(stream)


def _show_version(wanted: bool) -> None:
    if wanted:
        from holdfast import __version__

        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; any verb takes it.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of the command as a whole."""
