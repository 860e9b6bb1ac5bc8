"""`holdfast stream`: make, convert and look at streams."""

from __future__ import annotations

import typer

from holdfast.cli.moved import ANY_OPTIONS, moved
from holdfast.cli.stream.convert import convert
from holdfast.cli.stream.inspect import inspect
from holdfast.cli.stream.symbol_qa import symbol_qa
from holdfast.cli.verbs import Verb

stream = typer.Typer(
    name="stream",
    help="Make a stream of tasks, convert one, look at one.",
    no_args_is_help=True,
)
stream.command("symbol-qa", cls=Verb)(symbol_qa)
stream.command("convert", cls=Verb)(convert)
stream.command("inspect", cls=Verb)(inspect)
for _name in ("llm-qa", "real-qa"):
    _command = stream.command(_name, cls=Verb, hidden=True, context_settings=ANY_OPTIONS)
    _command(moved(f"stream {_name}"))
